"""The report on what each stage made of a training step."""

import re

import numpy as np

import treadle as td
from treadle import nn


def test_ten_lines_with_true_numbers():
    net = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 3))
    x, y = td.tensor(np.ones((4, 6), np.float32)), td.tensor(np.arange(4) % 3)
    told = td.api.stages(lambda x, y: nn.functional.cross_entropy(net(x), y), net.parameters(), x, y, name="step")
    lines = dict(line.strip().split("  ", 1) for line in told.splitlines())
    assert list(lines) == ["python", "front", "grad", "opt", "work", "state", "hlo", "xla", "memory", "run"]
    assert len(told.splitlines()) == 10
    size = sum(p.size for p in net.parameters())
    assert lines["python"] == f"step: {len(net.parameters())} tensors, {size} parameters"
    assert "gather_keys" in lines["opt"]
    # two linear layers, each forward and twice backward (the first one's input needs no gradient)
    shares = {name: int(share) for share, name in re.findall(r"(\d+)% (\w+)", lines["work"])}
    assert max(shares, key=shares.get) in ("matmul", "contract")
    counts = re.match(r"(\d+) tensors read from outside, .*; (\d+) of them changed", lines["state"])
    reads, changed = map(int, counts.groups())
    # six parameters, two running statistics, the generator's key and its counter; the last three change
    assert (reads, changed) == (10, 3)


def test_labels_that_cannot_be_ignored_are_not_counted():
    x = td.tensor(np.ones((4, 3), np.float32))

    def ops_of(labels, **options):
        module = td.trace_module(lambda x, y: nn.functional.cross_entropy(x, y, **options), x, labels)
        return [node.op.name for node in module.main.nodes]

    signed = np.arange(4) % 3
    assert "equal" in ops_of(signed)
    assert ops_of(signed.astype(np.uint8)) == ops_of(signed, ignore_index=None)
    assert "equal" in ops_of(signed.astype(np.uint8), ignore_index=2)
    losses = [nn.functional.cross_entropy(x, td.tensor(y)).item() for y in (signed, signed.astype(np.uint8))]
    assert losses[0] == losses[1]
