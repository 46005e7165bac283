"""Run the cases of cases.py in PyTorch and write golden.json. Needs torch, which the tests do not."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.nn.cases import fill
from tests.optim import cases


def short(number):
    return float(f"{number:.7g}")


def optimizers():
    for name, make in cases.OPTIMIZERS.items():
        params = [torch.nn.Parameter(torch.tensor(fill(s, 1.0 + i))) for i, s in enumerate(cases.SHAPES)]
        optimizer = make(torch.optim, params)
        rows = []
        for step in range(cases.STEPS):
            for i, p in enumerate(params):
                grad = torch.tensor(fill(tuple(p.shape), 3.0 + 2 * step + i))
                p.grad = None if cases.missing(name, step, i) else grad
            optimizer.step()
            rows.append([short(x) for p in params for x in p.detach().numpy().ravel()])
        yield name, rows


def schedules():
    for name, make in cases.SCHEDULES.items():
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.5)
        schedules = SimpleNamespace(**vars(torch.optim.lr_scheduler), SWALR=torch.optim.swa_utils.SWALR)
        schedule = make(schedules, optimizer)
        rates = [optimizer.param_groups[0]["lr"]]
        for step in range(cases.RATES):
            optimizer.step()
            schedule.step(*[cases.metric(step)] if "plateau" in name else [])
            rates.append(optimizer.param_groups[0]["lr"])
        yield name, [short(r) for r in rates]


def lbfgs():
    for name, how in {
        "plain": {"lr": 0.05, "max_iter": 4},
        "short history": {"lr": 0.05, "max_iter": 4, "history_size": 2},
    }.items():
        p = torch.nn.Parameter(torch.tensor([-1.2, 1.0, 0.5], dtype=torch.float64))
        optimizer = torch.optim.LBFGS([p], **how)

        def closure(p=p, optimizer=optimizer):
            optimizer.zero_grad()
            loss = (100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2).sum()
            loss.backward()
            return loss

        rows = []
        for _ in range(10):
            optimizer.step(closure)
            rows.append([short(x) for x in p.detach().numpy()])
        yield name, rows


def main():
    parts = {"optimizers": optimizers(), "schedules": schedules(), "lbfgs": lbfgs()}
    text = [f' "torch": {json.dumps(torch.__version__.partition("+")[0])}']
    for title, pairs in parts.items():
        lines = [f"  {json.dumps(name)}: {json.dumps(fact)}" for name, fact in pairs]
        text.append(f' "{title}": {{\n' + ",\n".join(lines) + "\n }")
    (Path(__file__).parent / "golden.json").write_text("{\n" + ",\n".join(text) + "\n}\n")


if __name__ == "__main__":
    main()
