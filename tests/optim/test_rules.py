"""Every rule against PyTorch's numbers at each of 20 steps, or a formula in NumPy; schedules; averages."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.nn.cases import fill
from tests.optim import cases

import treadle as td
from treadle import nn, optim

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())


def starts() -> list[Any]:
    return [nn.Parameter(fill(s, 1.0 + i)) for i, s in enumerate(cases.SHAPES)]


def grads_of(name: str, step: int) -> list[Any]:
    every = [fill(s, 3.0 + 2 * step + i) for i, s in enumerate(cases.SHAPES)]
    return [None if cases.missing(name, step, i) else td.Tensor(g) for i, g in enumerate(every)]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("name", cases.OPTIMIZERS)
def test_every_step_is_pytorchs(name: str, compiled: bool) -> None:
    params = starts()
    optimizer = cases.OPTIMIZERS[name](optim, params)
    step = td.jit(optimizer.step) if compiled else optimizer.step
    for i, wanted in enumerate(GOLDEN["optimizers"][name]):
        step(grads_of(name, i))
        found = np.concatenate([p.numpy().ravel() for p in params])
        np.testing.assert_allclose(found, wanted, 2e-5, 5e-6, err_msg=f"step {i + 1}")
    assert i + 1 == cases.STEPS


def norm(x: Any) -> float:
    return float(np.sqrt((x * x).sum()))


def lion(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
    m = s.get("m", 0.0)
    s["m"] = 0.99 * m + 0.01 * g
    return p - 0.1 * (np.sign(0.9 * m + 0.1 * g) + 0.2 * p)


def lamb(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
    s["m"] = 0.9 * s.get("m", 0.0) + 0.1 * g
    s["v"] = 0.99 * s.get("v", 0.0) + 0.01 * g**2
    r = s["m"] / (1 - 0.9**t) / (np.sqrt(s["v"] / (1 - 0.99**t)) + 1e-6) + 0.2 * p
    return p - 0.1 * norm(p) / norm(r) * r


def lars(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
    scale = 0.01 * norm(p) / (norm(g) + 0.2 * norm(p))
    s["v"] = 0.8 * s.get("v", 0.0) + 0.5 * scale * (g + 0.2 * p)
    return p - s["v"]


def muon(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
    s["b"] = 0.9 * s.get("b", 0.0) + 0.1 * g
    x = (0.1 * g + 0.9 * s["b"]).reshape(len(p), -1)
    x = x / norm(x)
    u, sizes, vt = np.linalg.svd(x, full_matrices=False)
    for _ in range(5):  # the step acts on the singular values alone
        sizes = 3.4445 * sizes - 4.775 * sizes**3 + 2.0315 * sizes**5
    rows, columns = x.shape
    return p * (1 - 0.1 * 0.2) - 0.1 * max(1, rows / columns) ** 0.5 * ((u * sizes) @ vt).reshape(p.shape)


def shampoo(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
    g = g + 0.2 * p
    axes = [i for i, n in enumerate(g.shape) if n <= 3]
    for i in axes:
        rows = np.moveaxis(g, i, 0).reshape(g.shape[i], -1)
        s[i] = s.get(i, 0.01 * np.eye(len(rows))) + rows @ rows.T
        if t % 2 == 1:
            w, q = np.linalg.eigh(s[i])
            s["root", i] = q * w ** (-0.5 / len(axes)) @ q.T
    for i in axes:
        g = np.moveaxis(np.tensordot(s["root", i], g, (1, i)), 0, i)
    s["b"] = 0.8 * s.get("b", 0) + g
    return p - 0.1 * s["b"]


FORMULAS: dict[str, Any] = {
    "lion": (lambda p: optim.Lion(p, lr=0.1, weight_decay=0.2), lion),
    "lamb": (lambda p: optim.LAMB(p, lr=0.1, betas=(0.9, 0.99), weight_decay=0.2), lamb),
    "lars": (lambda p: optim.LARS(p, lr=0.5, momentum=0.8, weight_decay=0.2, trust=0.01), lars),
    "shampoo": (
        lambda p: optim.Shampoo(p, lr=0.1, momentum=0.8, weight_decay=0.2, eps=0.01, update_freq=2, max_size=3),
        shampoo,
    ),
    "muon": (lambda p: optim.Muon(p, lr=0.1, momentum=0.9, weight_decay=0.2), muon),
}


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("name", FORMULAS)
def test_every_step_is_the_papers(name: str, compiled: bool) -> None:
    make, formula = FORMULAS[name]
    shapes = ((2, 3), (4, 2), (2, 2, 3))
    params = [nn.Parameter(fill(s, 1.0 + i)) for i, s in enumerate(shapes)]
    values = [p.numpy().astype(np.float64) for p in params]
    states: list[dict[str, Any]] = [{} for _ in params]
    optimizer = make(params)
    step = td.jit(optimizer.step) if compiled else optimizer.step
    for t in range(1, cases.STEPS + 1):
        grads = [fill(s, 3.0 + 2 * t + i) for i, s in enumerate(shapes)]
        step([td.Tensor(g) for g in grads])
        values = [formula(p, g.astype(np.float64), s, t) for p, g, s in zip(values, grads, states, strict=True)]
        for p, wanted in zip(params, values, strict=True):
            np.testing.assert_allclose(p.numpy(), wanted, 2e-4, 2e-4, err_msg=f"step {t}")


@pytest.mark.parametrize("name", ["LAMB", "LARS"])
def test_zero_parameters_and_gradients_stay_finite(name: str) -> None:
    params = [nn.Parameter(np.zeros((2, 2), np.float32)), nn.Parameter(np.ones((2, 2), np.float32))]
    optimizer = getattr(optim, name)(params, lr=0.1)
    optimizer.step([td.Tensor(np.ones((2, 2), np.float32)), td.Tensor(np.zeros((2, 2), np.float32))])
    assert (params[0].numpy() < 0).all() and (params[1].numpy() == 1).all()


EVERY = [
    name
    for name, kind in vars(optim).items()
    if isinstance(kind, type) and issubclass(kind, optim.Optimizer) and kind is not optim.Optimizer
]


MORE_STATE: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.9, "dampening": 0.3},
    "Adam": {"amsgrad": True},
    "AdamW": {"amsgrad": True},
    "RMSprop": {"momentum": 0.9, "centered": True},
    "ASGD": {"t0": 1, "lambd": 0.1},
    "Shampoo": {"momentum": 0.9, "update_freq": 2},
}


@pytest.mark.parametrize("name", EVERY)
def test_a_saved_run_goes_on_as_if_never_stopped(name: str) -> None:
    def run(steps: range, params: Any, state: Any) -> tuple[Any, Any]:
        first, second = params
        groups = [{"params": [first]}, {"params": [second], "lr": 0.05}]
        optimizer = getattr(optim, name)(groups, lr=0.1, **MORE_STATE.get(name, {}))
        if state is not None:
            optimizer.load_state_dict(state)
        step = td.jit(optimizer.step) if name in ("Adam", "Shampoo") else optimizer.step
        for i in steps:
            step([td.Tensor(fill(tuple(p.shape), 1.0 + 2 * i + k)) for k, p in enumerate(params)])
        return [p.numpy() for p in params], {k: v.numpy() for k, v in optimizer.state_dict().items()}

    def starts_at(values: Any) -> Any:
        return [nn.Parameter(v) for v in values]

    values = [fill((2, 3), 1.0), fill((3, 2), 2.0)]
    whole, last = run(range(5), starts_at(values), None)
    half, state = run(range(3), starts_at(values), None)
    again, final = run(range(3, 5), starts_at(half), state)
    for a, b, v in zip(whole, again, values, strict=True):
        np.testing.assert_array_equal(a, b)
        assert (a != v).any()
    assert last.keys() == final.keys()
    for k in last:
        np.testing.assert_array_equal(last[k], final[k], err_msg=k)


@pytest.mark.parametrize("name", EVERY)
def test_16_bit_parameters_and_state_that_goes_on(name: str) -> None:
    def run(steps: range, start: Any, state: Any) -> tuple[Any, Any]:
        p = nn.Parameter(start, dtype=td.bfloat16)
        optimizer = getattr(optim, name)([p], lr=40.0 if name in ("Adadelta", "LARS") else 0.5)
        if state is not None:
            optimizer.load_state_dict(state)
        for i in steps:
            optimizer.step([td.Tensor(fill((2, 2), 1.0 + i), dtype=td.bfloat16)])
        assert p.dtype is td.bfloat16 and all(t.dtype is td.float32 for ts in optimizer.state.values() for t in ts)
        return p.numpy(), optimizer.state_dict()

    first = np.ones((2, 2), np.float32)
    whole, _ = run(range(4), first, None)
    half, state = run(range(2), first, None)
    again, _ = run(range(2, 4), half, {k: v.numpy() for k, v in state.items()})
    assert (whole != first).any()
    np.testing.assert_array_equal(whole, again)


def test_a_parameter_unfrozen_later_starts_its_own_count() -> None:
    late, alone = (nn.Parameter(np.ones(2, np.float32)) for _ in range(2))
    late.requires_grad = False
    other = nn.Parameter(np.ones(2, np.float32))
    both, single = optim.Adam([other, late], lr=0.1), optim.Adam([alone], lr=0.1)
    g = td.Tensor(np.array([1.0, -2.0], np.float32))
    for _ in range(5):
        both.step([g, g])
    late.requires_grad = True
    both.step([g, g])
    single.step([g])
    np.testing.assert_array_equal(late.numpy(), alone.numpy())
    assert both.steps.tolist() == [6, 1] and both.count.item() == 6


def test_options_that_need_more_state_may_come_later() -> None:
    p = nn.Parameter(np.ones(2, np.float32))
    optimizer = optim.SGD([p], lr=0.5)
    g = td.Tensor(np.ones(2, np.float32))
    optimizer.step([g])
    optimizer.set_options(momentum=0.5)
    optimizer.step([g])
    optimizer.step([g])
    np.testing.assert_allclose(p.numpy(), 1 - 0.5 * (1 + 1 + 1.5))


OURS = SimpleNamespace(**{n: getattr(optim, n) for n in optim.__all__})
for made in ("CyclicLR", "OneCycleLR"):  # ours have no such option
    setattr(OURS, made, lambda *args, cycle_momentum, made=made, **kwargs: getattr(optim, made)(*args, **kwargs))


def schedule_of(name: str) -> tuple[Any, Any]:
    optimizer = optim.SGD([nn.Parameter(np.zeros(1, np.float32))], lr=1.5)
    return optimizer, cases.SCHEDULES[name](OURS, optimizer)


@pytest.mark.parametrize("name", cases.SCHEDULES)
def test_rates_are_pytorchs(name: str) -> None:
    optimizer, schedule = schedule_of(name)
    rates = [optimizer.lr]
    for i in range(cases.RATES):
        if i == 11:  # go on in another one, from numbers that went through JSON
            state = json.loads(json.dumps(schedule.state_dict()))
            optimizer, schedule = schedule_of(name)
            schedule.load_state_dict(state)
        schedule.step(*[cases.metric(i)] if "plateau" in name else [])
        rates.append(optimizer.lr)
    np.testing.assert_allclose(rates, GOLDEN["schedules"][name], 1e-6)


def test_inverse_root() -> None:
    optimizer = optim.SGD([nn.Parameter(np.zeros(1, np.float32))], lr=2.0)
    schedule = optim.InverseSqrt(optimizer, 4)
    rates = [optimizer.lr]
    for _ in range(15):
        schedule.step()
        rates.append(optimizer.lr)
    np.testing.assert_allclose(rates[:4], [0.5, 1.0, 1.5, 2.0], 1e-6)
    np.testing.assert_allclose([rates[8], rates[15]], [2 * (4 / 9) ** 0.5, 1.0], 1e-6)


def test_a_rate_set_by_hand_is_the_new_start() -> None:
    optimizer = optim.SGD([nn.Parameter(np.zeros(1, np.float32))], lr=1.0)
    optim.ConstantLR(optimizer, 0.5)
    assert optimizer.lr == 0.5
    assert optim.ConstantLR(optimizer, 0.5).bases == [1.0]
    optimizer.lr = 3.0
    assert optim.ConstantLR(optimizer, 0.5).bases == [3.0]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("warm_up", [True, False])
def test_averages(compiled: bool, warm_up: bool) -> None:
    net = nn.Linear(2, 1)
    net.weight.assign(np.array([[1.0, 2.0]], np.float32))
    ema = optim.EMA(net, 0.5, warm_up)
    update = td.jit(ema.update) if compiled else ema.update
    wanted = np.array([1.0, 2.0])
    for n in range(1, 4):
        net.weight.assign(np.full((1, 2), n, np.float32))
        update()
        decay = min(0.5, (1 + n) / (10 + n)) if warm_up else 0.5
        wanted = decay * wanted + (1 - decay) * n
    with ema.applied():
        np.testing.assert_allclose(net.weight.numpy()[0], wanted, 1e-6)
        with pytest.raises(td.UserError, match="E0537"):
            ema.apply()
    np.testing.assert_array_equal(net.weight.numpy(), [[3.0, 3.0]])
    with pytest.raises(td.UserError, match="E0537"):
        ema.restore()
    other = optim.EMA(net, 0.5)
    other.load_state_dict({k: v.numpy() for k, v in ema.state_dict().items()})
    np.testing.assert_allclose(other.averages[0].numpy()[0], wanted, 1e-6)
    with pytest.raises(td.UserError, match="E0535"):
        other.load_state_dict({})


def test_groups_for_weight_decay() -> None:
    net = nn.Sequential(nn.Embedding(3, 2), nn.Linear(2, 2), nn.LayerNorm(2))
    decayed, plain = optim.decay_groups(net, 0.1, without=["0."])
    assert [list(p.shape) for p in decayed["params"]] == [[2, 2]] and decayed["weight_decay"] == 0.1
    assert [list(p.shape) for p in plain["params"]] == [[3, 2], [2], [2], [2]] and plain["weight_decay"] == 0
    optimizer = optim.AdamW([decayed, plain], lr=1.0)
    kept = net[2].weight.numpy(), net[1].weight.numpy()
    optimizer.step([td.Tensor(np.zeros(p.shape, np.float32)) for p in optimizer.params])
    np.testing.assert_array_equal(net[2].weight.numpy(), kept[0])
    np.testing.assert_allclose(net[1].weight.numpy(), kept[1] * 0.9, 1e-6)


def test_plain_means_of_parameters_and_batch_statistics() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    swa = optim.SWA(net)
    weights = [fill((3, 2), float(i)) for i in range(3)]
    for w in weights:
        net[0].weight.assign(w)
        td.jit(swa.update)()
    batches = [fill((4, 2), 1.0), fill((4, 2), 7.0)]
    net.eval()
    with swa.applied():
        np.testing.assert_allclose(net[0].weight.numpy(), np.mean(weights, 0), 1e-5, 1e-6)
        optim.update_bn([(b, None) for b in batches], net)
        y = [net[0](b).numpy() for b in batches]
        np.testing.assert_allclose(net[1].running_mean.numpy(), np.mean([v.mean(0) for v in y], 0), 1e-5, 1e-6)
        np.testing.assert_allclose(net[1].running_var.numpy(), np.mean([v.var(0, ddof=1) for v in y], 0), 1e-5)
    assert not net.training and net[1].momentum == 0.1
    optim.update_bn([], nn.Linear(2, 2))


@pytest.mark.parametrize("order", [1, 2, 3.5, np.inf])
def test_clipping_by_any_norm(order: float) -> None:
    grads = [td.Tensor(np.array([3.0, -4.0], np.float32)), None, td.Tensor(np.array([[2.0]], np.float32))]
    wanted = np.linalg.norm([3.0, -4.0, 2.0], order)
    np.testing.assert_allclose(optim.global_norm(grads, order).item(), wanted, 1e-6)
    clipped = optim.clip_grad_norm(grads, 0.5, order)
    assert clipped[1] is None
    np.testing.assert_allclose(clipped[0].numpy(), np.array([3.0, -4.0]) * 0.5 / wanted, 1e-5)
    np.testing.assert_allclose(optim.clip_grads_with_norm(grads, 1.0, 4.0)[2].numpy(), [[0.5]], 1e-5)
    with pytest.raises(td.UserError, match="E0536"):
        optim.global_norm(grads, 0)


def test_wrong_options() -> None:
    p = [nn.Parameter(np.zeros(2, np.float32))]
    sgd = optim.SGD(p, lr=1.0)
    for wrong in (
        lambda: optim.Adagrad(p, lr_decay=-1),
        lambda: optim.RMSprop(p, alpha=1.0),
        lambda: optim.Adadelta(p, rho=2),
        lambda: optim.Adamax(p, betas=(1.0, 0.5)),
        lambda: optim.Rprop(p, etas=(1.5, 2)),
        lambda: optim.Lion(p, betas=(0.9,)),
        lambda: optim.LAMB(p, weight_decay=-1),
        lambda: optim.LARS(p, trust=0),
        lambda: optim.Adafactor(p, d=0.5),
        lambda: optim.Muon(p),
        lambda: optim.SGD(p, momentum=0.9, nesterov=True, dampening=0.5),
        lambda: optim.EMA(p, 1.0),
        lambda: optim.ASGD(p, lambd=-1),
        lambda: optim.Shampoo(p, update_freq=0),
        lambda: optim.Shampoo(p, eps=0),
        lambda: optim.SWALR(sgd, 0.1, anneal_strategy="step"),
        lambda: optim.ChainedScheduler([]),
        lambda: optim.OneCycleLR(sgd, 1.0, epochs=3),
        lambda: optim.OneCycleLR(sgd, 1.0, 10, pct_start=0.6, three_phase=True),
        lambda: optim.ConstantLR(sgd, 2.0),
        lambda: optim.LinearLR(sgd, 0.0),
        lambda: optim.PolynomialLR(sgd, 0),
        lambda: optim.InverseSqrt(sgd, 0),
        lambda: optim.CosineAnnealingWarmRestarts(sgd, 0),
        lambda: optim.CyclicLR(sgd, 0.1, 1.0, mode="square"),
        lambda: optim.SequentialLR(sgd, [optim.ConstantLR(sgd)], [1]),
        lambda: optim.SequentialLR(sgd, [optim.ReduceLROnPlateau(sgd)], []),
        lambda: optim.ReduceLROnPlateau(sgd, mode="least"),
        lambda: optim.ReduceLROnPlateau(sgd).step(),
    ):
        with pytest.raises(td.UserError, match="E0531"):
            wrong()
