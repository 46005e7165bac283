"""`td.amp.GradScaler`, `td.amp.initialize` and `Trainer(amp=...)`: steps, skipped steps, masters, resuming."""

from functools import cache

import numpy as np
import pytest

import treadle as td
from treadle import nn
from treadle.api.programs import Jitted
from treadle.base.errors import UserError
from treadle.ir.walk import all_nodes

modes = pytest.mark.parametrize("compiled", [False, True])


def parameter(*numbers, dtype=None):
    return nn.Parameter(np.array(numbers, np.float32), dtype=dtype)


def run(function, compiled):
    return td.jit(function) if compiled else function


# -------------------------------------------------------------------------------------------------------------- scaler
@modes
def test_a_step_is_that_of_the_true_gradients(compiled):
    p, q = parameter(1, 2), parameter(1, 2)
    scaler = td.amp.GradScaler(init_scale=2.0**10)
    opts = [td.optim.Adam([w], lr=0.1) for w in (p, q)]

    def step(x):
        loss, grads = td.value_and_grad(lambda: scaler.scale((p * x).sum() ** 2), [p])()
        scaler.step(opts[0], grads)
        scaler.update()
        opts[1].step(td.grad(lambda: (q * x).sum() ** 2, [q])())
        return loss

    step = run(step, compiled)
    for i in range(3):
        assert step(td.tensor([1.0, 0.5 + i])).item() > 2.0**10
        assert np.array_equal(p.numpy(), q.numpy())
    assert scaler.get_scale() == 2.0**10
    assert scaler.state_dict() == {"scale": 2.0**10, "good": 3, "skipped": 0}


@modes
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_step_with_a_bad_gradient_is_left_out_and_lowers_the_scale(compiled, bad):
    p, frozen = parameter(1, 2), parameter(5)
    frozen.requires_grad = False
    opt, scaler = td.optim.Adam([p, frozen], lr=0.1), td.amp.GradScaler(init_scale=8.0, growth_interval=3)

    def step(g):
        scaler.step(opt, [g, td.tensor([1.0])])
        scaler.update()

    step = run(step, compiled)
    step(td.tensor([8.0, 8.0]))
    before = {"p": p.numpy(), **{k: v.numpy() for k, v in opt.state_dict().items()}}
    step(td.tensor([1.0, bad]))
    after = {"p": p.numpy(), **{k: v.numpy() for k, v in opt.state_dict().items()}}
    assert all(np.array_equal(before[k], after[k]) for k in before)
    assert scaler.state_dict() == {"scale": 4.0, "good": 0, "skipped": 1}
    for scale in (4.0, 4.0, 8.0, 8.0, 8.0, 16.0):
        step(td.tensor([1.0, 1.0]))
        assert scaler.get_scale() == scale
    assert not np.array_equal(before["p"], p.numpy())
    assert frozen.numpy() == 5
    assert opt.state_dict()["steps"].numpy().tolist() == [7, 0]


def test_the_scale_stays_in_range():
    p, scaler = parameter(1), td.amp.GradScaler(init_scale=2.0**127, growth_interval=1)
    opt = td.optim.SGD([p], lr=0.0)
    scaler.step(opt, [td.tensor([1.0])])
    scaler.update()
    assert scaler.get_scale() == 2.0**127  # twice that is infinite
    scaler.update(2.0**-24)
    for _ in range(3):
        scaler.step(opt, [td.tensor([np.inf])])
        scaler.update()
    assert scaler.get_scale() == 2.0**-24


def test_a_static_scale_and_none():
    p = parameter(1)
    opt, still = td.optim.SGD([p], lr=1.0), td.amp.GradScaler(4.0, dynamic=False, growth_interval=1)
    for g, wanted in ((4.0, 0.0), (np.inf, 0.0), (4.0, -1.0)):
        still.step(opt, [td.tensor([g])])
        still.update()
        assert p.numpy() == wanted
        assert still.get_scale() == 4.0
    off = td.amp.GradScaler(enabled=False)
    loss = td.tensor(2.0)
    assert off.scale(loss) is loss
    assert off.get_scale() == 1.0
    off.step(opt, [td.tensor([1.0])])
    off.update()
    assert p.numpy() == -2


@modes
def test_unscaled_gradients_can_be_clipped_first(compiled):
    p = parameter(0, 0)
    opt, scaler = td.optim.SGD([p], lr=1.0), td.amp.GradScaler(16.0)

    def step(g):
        grads = scaler.unscale([g])
        assert grads[0].dtype is td.float32
        scaler.step(opt, td.optim.clip_grad_value(grads, 1.0), unscaled=True)
        scaler.update()

    step = run(step, compiled)
    step(td.tensor(np.array([8.0, 160.0])).astype(td.float16))
    assert p.numpy().tolist() == [-0.5, -1.0]
    step(td.tensor(np.array([8.0, np.inf])).astype(td.float16))
    assert p.numpy().tolist() == [-0.5, -1.0]
    assert scaler.state_dict()["skipped"] == 1


def test_scaling_saves_gradients_that_float16_would_lose():
    x, w = td.tensor(np.full((1, 4), 1e-3, np.float32)), parameter(*[1e-3] * 4)

    def gradient(scaler):
        def loss():
            with td.amp.autocast(dtype=td.float16):
                return scaler.scale((x @ w.reshape(4, 1)).astype(td.float32).sum() * 1e-5)

        return scaler.unscale(td.grad(loss, [w])())[0].numpy()

    assert not gradient(td.amp.GradScaler(enabled=False)).any()
    assert gradient(td.amp.GradScaler()) == pytest.approx(1e-8, rel=1e-3)


def test_the_compiled_step_asks_nobody():
    """One program, without calls of the host and without branches."""
    p, scaler = parameter(1, 2), td.amp.GradScaler()
    opt = td.optim.Adam([p])

    def step(x):
        scaler.step(opt, td.grad(lambda: scaler.scale((p * x).sum()), [p])())
        scaler.update()

    names = {n.op.name for n in all_nodes(td.trace_module(step, td.tensor([1.0, 2.0])))}
    assert "adam_update" in names
    assert not {n for n in names if "host" in n} | names & {"if", "while"}


def test_wrong_options_and_states():
    for wrong in ({"init_scale": 0}, {"growth_factor": 1}, {"backoff_factor": 1}, {"growth_interval": 0}):
        with pytest.raises(UserError, match="E0531"):
            td.amp.GradScaler(**wrong)
    with pytest.raises(UserError, match="E0535"):
        td.amp.GradScaler().load_state_dict({"scale": 1})
    with pytest.raises(UserError, match="E0533"):
        td.amp.GradScaler().unscale(td.tensor(1.0))
    with pytest.raises(UserError, match="E0531"):
        td.amp.GradScaler().update(-1.0)
    with pytest.raises(UserError, match="E0533"):
        td.amp.GradScaler().step(td.optim.LBFGS([parameter(1)]), [td.tensor([1.0])])


# ------------------------------------------------------------------------------------------------------------- masters
@modes
def test_masters_move_where_16_bits_would_stand_still(compiled):
    net = nn.Linear(1, 1, bias=False)
    net.weight.assign(np.ones((1, 1)))
    opt = td.optim.SGD(net.parameters(), lr=1.0)
    block = td.amp.initialize(net, opt, "O2")
    assert net.weight.dtype is td.bfloat16

    def step(x):
        with block:
            grads = td.grad(lambda: net(x).astype(td.float32).sum(), net.parameters())()
        opt.step(grads)

    step = run(step, compiled)
    for _ in range(8):
        step(td.tensor([[2.0**-10]]))
    assert opt.masters[0].numpy() == 1 - 2.0**-7
    assert net.weight.numpy().astype(np.float32) == 1 - 2.0**-7


def test_what_becomes_16_bit_and_what_is_kept():
    net = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.GroupNorm(1, 3), nn.Flatten(), nn.Linear(3, 2))
    exact = [p.numpy() for p in net.parameters()]
    opt = td.optim.Adam(net.parameters())
    td.amp.initialize(net, opt, "O2", td.float16)
    kinds = {name: p.dtype for name, p in net.named_parameters()}
    assert {n for n, d in kinds.items() if d is td.float16} == {"0.weight", "0.bias", "4.weight", "4.bias"}
    assert all(b.dtype is not td.float16 for _, b in net.named_buffers())
    for i, master in opt.masters.items():
        assert np.array_equal(master.numpy(), exact[i])
    assert sorted(n for n in opt.state_dict() if n.startswith("master")) == [f"master.{i}" for i in (0, 1, 6, 7)]
    td.amp.initialize(net, opt, "O2", td.float16)  # again: nothing changes
    assert all(np.array_equal(m.numpy(), exact[i]) for i, m in opt.masters.items())
    assert all(t.dtype is td.float32 for slot in opt.state.values() for t in slot)


# ------------------------------------------------------------------------------------------------------------- trainer
def batches():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((256, 12)).astype(np.float32)
    y = (np.tanh(x @ rng.standard_normal((12, 6))) @ rng.standard_normal((6, 4))).argmax(1).astype(np.int32)
    return [(x[i : i + 64], y[i : i + 64]) for i in range(0, 256, 64)]


def trainer(amp="O0", dtype=td.bfloat16, jit=None, scaler=None):
    td.manual_seed(1)
    net = nn.Sequential(nn.Linear(12, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))
    opt = td.optim.Adam(net.parameters(), lr=5e-3)
    loss = nn.CrossEntropyLoss()
    return td.train.Trainer(net, loss, opt, jit=jit, amp=amp, amp_dtype=dtype, scaler=scaler)


def fitted(epochs=6, **options):
    made = trainer(**options)
    made.fit(batches(), epochs=epochs, progress=False)
    return made


@cache
def in_float32():
    return fitted()


@pytest.mark.parametrize("dtype", [td.bfloat16, td.float16])
@pytest.mark.parametrize("amp", ["O1", "O2"])
def test_training_reaches_the_loss_of_float32(amp, dtype):
    exact, mixed = in_float32(), fitted(amp=amp, dtype=dtype)
    first, last = exact.history.losses[0], exact.history.losses[-1]
    assert last < 0.7 * first
    assert mixed.history.losses[-1] == pytest.approx(last, abs=0.02)
    assert mixed.history.losses != exact.history.losses
    kinds = {p.dtype for p in mixed.net.parameters()}
    assert kinds == ({td.float32, dtype} if amp == "O2" else {td.float32})
    assert mixed.scaler.enabled == (dtype is td.float16)
    assert mixed.predict(batches()[0][0]).dtype is td.float32
    assert mixed.evaluate(batches())["loss"] == pytest.approx(exact.evaluate(batches())["loss"], abs=0.02)


@pytest.mark.parametrize("amp", ["O1", "O2"])
def test_eager_and_compiled_training_agree(amp):
    eager, compiled = (fitted(2, amp=amp, dtype=td.float16, jit=jit) for jit in (False, True))
    assert eager.history.losses == pytest.approx(compiled.history.losses, abs=2e-4)
    assert isinstance(compiled._step, Jitted)
    assert compiled._step.cache_info().compiled == 1


@pytest.mark.parametrize(("amp", "dtype"), [("O1", td.float16), ("O2", td.float16), ("O2", td.bfloat16)])
def test_a_resumed_training_goes_on_as_if_it_had_not_stopped(amp, dtype, tmp_path):
    def make():
        return trainer(amp=amp, dtype=dtype, scaler=td.amp.GradScaler(2.0**12, growth_interval=3))

    whole, half = make(), make()
    whole.fit(batches(), epochs=2, progress=False)
    half.fit(batches(), epochs=1, progress=False)
    half.save(tmp_path / "state")
    again = make()
    again.net[0].weight.assign(np.zeros((32, 12)))
    again.restore(tmp_path / "state")
    assert again.scaler.state_dict() == half.scaler.state_dict()
    assert half.scaler.get_scale() == 2.0**13
    again.fit(batches(), epochs=1, progress=False)
    assert again.history.losses == whole.history.losses[4:]
    assert again.scaler.state_dict() == whole.scaler.state_dict()
    for a, b in zip(again.net.parameters(), whole.net.parameters(), strict=True):
        assert np.array_equal(a.numpy(), b.numpy())


def test_the_trainer_inside_a_block_and_with_wrong_options():
    made = trainer()
    with td.amp.autocast():
        made.fit(batches(), epochs=1, progress=False)
    assert made.history.losses == fitted(1, amp="O1").history.losses
    with pytest.raises(UserError, match="E0565"):
        trainer(scaler=1024.0)
    with pytest.raises(UserError, match="E0195"):
        trainer(amp="O4")


def test_the_trainer_leaves_out_bad_steps():
    made = trainer(amp="O1", dtype=td.float16, scaler=td.amp.GradScaler(2.0**40))
    made.fit(batches(), epochs=8, progress=False)
    state = made.scaler.state_dict()
    assert 10 < state["skipped"] < 32
    assert made.optimizer.count.item() == 32 - state["skipped"]
    assert all(np.isfinite(p.numpy()).all() for p in made.net.parameters())
    assert made.history.losses[-1] < made.history.losses[0]
