"""Checkpoints: every flipped bit is found, a cut-off save leaves the old one, other models are refused."""

import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle as td
from treadle import nn, optim, train
from treadle.train import checkpoint


def made(width: int = 3) -> tuple[Any, Any]:
    net = nn.Sequential(nn.Linear(2, width), nn.BatchNorm1d(width))
    return net, optim.Adam(net.parameters(), lr=0.1)


def numbers(net: Any, optimizer: Any) -> dict[str, Any]:
    return {k: v.numpy() for part in (net, optimizer) for k, v in part.state_dict().items()}


def test_round_trip(tmp_path: Path) -> None:
    net, optimizer = made()
    net[0].astype(td.bfloat16)
    optimizer = optim.Adam(net.parameters(), lr=0.1)
    net.register_buffer("flag", np.array(True))
    net.register_buffer("none", np.zeros((0, 3), np.float16))
    optimizer.step([td.Tensor(np.ones(p.shape), dtype=p.dtype) for p in net.parameters()])
    td.manual_seed(11)
    extra = {"list": [1, 2.5, None], "text": "x"}
    assert train.save(tmp_path / "c", net, optimizer, extra, step=7) == tmp_path / "c"
    before, drawn = numbers(net, optimizer), td.rand(3).numpy()
    for tensor in net.state_dict():
        own = dict(net.named_parameters()) | dict(net.named_buffers())
        own[tensor].assign(np.zeros(own[tensor].shape))
    found = train.load(tmp_path / "c", net, optimizer)
    assert found.step == 7 and found.extra == extra
    for k, v in numbers(net, optimizer).items():
        assert v.dtype == before[k].dtype
        np.testing.assert_array_equal(v, before[k])
    np.testing.assert_array_equal(td.rand(3).numpy(), drawn)
    manifest = json.loads((tmp_path / "c" / "manifest.json").read_text())
    assert manifest["format"] == 1 and manifest["parts"]["model"]["tensors"]["0.weight"]["dtype"] == "bfloat16"


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    net, optimizer = made()
    folder = train.save(tmp_path / "c", net, optimizer, {"a": 1})
    before = numbers(net, optimizer)
    rng, count = random.Random(0), 0
    for file in sorted(folder.iterdir()):
        good = file.read_bytes()
        places = range(len(good)) if len(good) < 600 else sorted(rng.sample(range(len(good)), 600))
        for place in places:
            bad = bytearray(good)
            bad[place] ^= 1 << rng.randrange(8)
            file.write_bytes(bad)
            with pytest.raises(td.UserError, match="E0603"):
                train.load(folder, net, optimizer)
            count += 1
        file.write_bytes(good[:-1])
        with pytest.raises(td.UserError, match="E0603"):
            train.load(folder, net, optimizer)
        file.write_bytes(good)
    assert count > 1000
    train.load(folder, net, optimizer)
    for k, v in numbers(net, optimizer).items():
        np.testing.assert_array_equal(v, before[k])


def test_a_swapped_or_missing_file_is_found(tmp_path: Path) -> None:
    net, _ = made()
    one = train.save(tmp_path / "1", net)
    net[0].bias.assign(np.ones(3))
    two = train.save(tmp_path / "2", net)
    mine, other = next(one.glob("*.safetensors")), next(two.glob("*.safetensors"))
    assert mine.name != other.name
    mine.write_bytes(other.read_bytes())
    with pytest.raises(td.UserError, match=r"E0603.*0\.bias"):
        train.load(one, net)
    mine.unlink()
    with pytest.raises(td.UserError, match=r"E0603.*missing"):
        train.load(one, net)
    with pytest.raises(td.UserError, match="E0608"):
        train.load(tmp_path / "3", net)


def test_another_model_is_refused_with_the_differences(tmp_path: Path) -> None:
    net, optimizer = made()
    folder = train.save(tmp_path / "c", net, optimizer)
    other, its = made(4)
    before = numbers(other, its)
    with pytest.raises(td.UserError, match=r"E0604(.|\n)*0\.weight is f32\[4,2\] here, f32\[3,2\] in the checkpoint"):
        train.load(folder, other, its)
    deeper = nn.Sequential(*net, nn.Linear(3, 1))
    with pytest.raises(td.UserError, match=r"E0604(.|\n)*2\.weight is f32\[1,3\] here, not in the checkpoint"):
        train.load(folder, deeper)
    with pytest.raises(td.UserError, match=r"E0604(.|\n)*1\.bias is f32\[3\] in the checkpoint, not here"):
        train.load(folder, net[:1])
    with pytest.raises(td.UserError, match="E0604"):
        train.load(folder, net, optim.SGD(net.parameters()))
    for k, v in numbers(other, its).items():
        np.testing.assert_array_equal(v, before[k])
    alone = train.save(tmp_path / "alone", net)
    with pytest.raises(td.UserError, match=r"E0604 .* holds no optimizer"):
        train.load(alone, net, optimizer)


@pytest.mark.parametrize("at", range(1, 4))
def test_a_save_that_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    net, optimizer = made()
    folder = train.save(tmp_path / "c", net, optimizer, step=1)
    old = numbers(net, optimizer)
    net[0].bias.assign(np.full(3, 5.0))
    calls, replace = [0], os.replace

    def failing(a: Any, b: Any) -> None:
        calls[0] += 1
        if calls[0] == at:
            raise OSError("disk full")
        replace(a, b)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match="disk full"):
        train.save(folder, net, optimizer, step=2)
    monkeypatch.undo()
    again, its = made()
    assert train.load(folder, again, its).step == 1
    for k, v in numbers(again, its).items():
        np.testing.assert_array_equal(v, old[k])
    train.save(folder, net, optimizer, step=2)
    assert train.load(folder, again, its).step == 2 and again[0].bias.numpy()[0] == 5
    assert len(list(folder.iterdir())) == 3  # nothing is left over


def test_what_cannot_be_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, _ = made()
    (tmp_path / "file").write_text("")
    with pytest.raises(td.UserError, match="E0605"):
        train.save(tmp_path / "file", net)
    for extra in ({"a": object()}, {"a": float("nan")}):
        with pytest.raises(td.UserError, match="E0606"):
            train.save(tmp_path / "c", net, extra=extra)
    net.register_buffer("z", np.zeros(2, np.complex64))
    with pytest.raises(td.UserError, match="E0606"):
        train.save(tmp_path / "c", net)
    net, _ = made()
    folder = train.save(tmp_path / "d", net)
    monkeypatch.setattr(checkpoint, "FORMAT", 0)
    with pytest.raises(td.UserError, match="E0607"):
        train.read(folder)
