"""Run the cases of cases.py in PyTorch and write golden.json: first elements and projections.

Needs torch, which the tests do not.
"""

import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.nn import cases

DIGITS, FIRST = 7, 4


def flat(result):
    if isinstance(result, torch.Tensor):
        return [result]
    return [t for part in result for t in flat(part)]


def short(number):
    return float(f"{number:.{DIGITS}g}")


def facts(tensors):
    arrays = [t.detach().numpy() for t in tensors]
    firsts = [[short(x) for x in a.ravel()[:FIRST]] for a in arrays]
    return [{"shape": a.shape, "first": f, "sum": short(cases.project(a))} for a, f in zip(arrays, firsts)]


def layers():
    for name, (make, shapes, training, call) in cases.LAYERS.items():
        net = make(torch.nn).train(training)
        for i, p in enumerate(net.parameters()):
            p.data = torch.tensor(cases.fill(tuple(p.shape), 0.3 + i))
        inputs = [torch.tensor(cases.fill(s, 5.0 + i), requires_grad=True) for i, s in enumerate(shapes)]
        outputs = flat(net(*inputs) if call is None else call(net, *inputs))
        sum((o * torch.tensor(cases.cotangent(tuple(o.shape)))).sum() for o in outputs).backward()
        yield (
            name,
            {
                "names": [n for n, _ in net.named_parameters()],
                "outputs": facts(outputs),
                "inputs": facts([x.grad for x in inputs]),
                "params": [short(cases.project(p.grad.numpy())) for p in net.parameters()],
                "buffers": {
                    n: [short(x) for x in b.numpy().ravel()] for n, b in net.named_buffers() if n.startswith("running")
                },
            },
        )


def losses():
    for name, (make, shape, target) in cases.LOSSES.items():
        x = torch.tensor(cases.fill(shape, 5.0), requires_grad=True)
        loss = make(torch.nn, torch.tensor)(x, torch.tensor(target))
        loss.sum().backward()
        yield name, {"loss": facts([loss])[0], "input": facts([x.grad])[0]}


def optimizers():
    for name, make in cases.OPTIMIZERS.items():
        params = [torch.nn.Parameter(torch.tensor(cases.fill(s, 1.0 + i))) for i, s in enumerate(cases.SHAPES)]
        optimizer = make(torch.optim, params)
        for step in range(cases.STEPS):
            for p, g in zip(params, cases.gradients(step)):
                p.grad = torch.tensor(g)
            optimizer.step()
        yield name, [[short(x) for x in p.detach().numpy().ravel()] for p in params]


def schedules():
    for name, (make, _) in cases.SCHEDULES.items():
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.5)
        schedule = make(torch.optim.lr_scheduler, optimizer)
        rates = [optimizer.param_groups[0]["lr"]]
        for _ in range(cases.RATES):
            optimizer.step()
            schedule.step()
            rates.append(optimizer.param_groups[0]["lr"])
        yield name, [short(r) for r in rates]


def main():
    parts = {"layers": layers(), "losses": losses(), "optimizers": optimizers(), "schedules": schedules()}
    text = [f' "torch": {json.dumps(torch.__version__.partition("+")[0])}']
    for title, pairs in parts.items():
        lines = [f"  {json.dumps(name)}: {json.dumps(fact)}" for name, fact in pairs]
        text.append(f' "{title}": {{\n' + ",\n".join(lines) + "\n }")
    (Path(__file__).parent / "golden.json").write_text("{\n" + ",\n".join(text) + "\n}\n")


if __name__ == "__main__":
    main()
