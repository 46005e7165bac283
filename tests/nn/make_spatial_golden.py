"""Run the cases of spatial_cases.py in PyTorch and write spatial_golden.json. Needs torch, which the tests do not."""

import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.nn import cases, spatial_cases
from tests.nn.make_golden import facts, flat, short


def results(table=spatial_cases.CASES):
    for name, (make, inputs, call) in table.items():
        net = make(torch.nn)
        for i, p in enumerate(net.parameters()):
            p.data = torch.tensor(cases.fill(tuple(p.shape), 0.3 + i))
        given = [
            torch.tensor(cases.fill(x, 5.0 + i), requires_grad=True) if isinstance(x, tuple) else torch.tensor(x)
            for i, x in enumerate(inputs)
        ]
        outputs = flat(net(*given) if call is None else call(net, *given))
        sum((o * torch.tensor(cases.cotangent(tuple(o.shape)))).sum() for o in outputs).backward()
        yield (
            name,
            {
                "names": [n for n, _ in net.named_parameters()],
                "outputs": facts(outputs),
                "inputs": facts([x.grad for x in given if x.requires_grad]),
                "params": [short(cases.project(p.grad.numpy())) for p in net.parameters()],
                "buffers": {
                    n: [short(x) for x in b.numpy().ravel()] for n, b in net.named_buffers() if n.startswith("running")
                },
            },
        )


def main():
    lines = [f"  {json.dumps(name)}: {json.dumps(fact)}" for name, fact in results()]
    version = json.dumps(torch.__version__.partition("+")[0])
    text = f'{{\n "torch": {version},\n "cases": {{\n' + ",\n".join(lines) + "\n }\n}\n"
    (Path(__file__).parent / "spatial_golden.json").write_text(text)


if __name__ == "__main__":
    main()
