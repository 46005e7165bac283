"""`td.debug_nans` finds the first op that gives NaN, in every mode; `td.deterministic` reaches the compiler."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import treadle as td
from treadle import nn, optim
from treadle.base.errors import UserError
from treadle.base.flags import flags
from treadle.runtime import nans, pjrt

HERE = Path(__file__).name


@pytest.fixture(autouse=True)
def _flags_as_before() -> Iterator[None]:
    yield
    td.debug_nans(False)
    td.deterministic(False)


def line_of(error: UserError, text: str) -> bool:
    """Whether the error points at a line of this file that has the text."""
    return error.where.file.endswith(HERE) and text in error.where.source_line()


def logarithm(x):
    y = x * 2
    z = y.log()  # here
    return (z + 1).sum()


WRAPS = {
    "eager": lambda f: f,
    "jit": td.jit,
    "gradient": td.grad,
    "compiled gradient": lambda f: td.jit(td.value_and_grad(f)),
}


@pytest.mark.parametrize("size", [4, 100_000])
@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_the_first_op_is_named_with_its_line(wrap, size):
    x = np.linspace(-1, 1, size).astype(np.float32)
    td.debug_nans(True)
    with pytest.raises(UserError, match=r"E0415 log: \d+ NaN among \d+ elements .* from -2 to 2") as caught:
        wrap(logarithm)(td.tensor(x))
    assert line_of(caught.value, "# here")


def test_nothing_is_looked_for_unless_switched_on():
    assert np.isnan(logarithm(td.tensor([-1.0])).item())
    with td.debug_nans():
        assert flags.debug_nans == 1
        with td.debug_nans(False):
            assert np.isnan(logarithm(td.tensor([-1.0])).item())
        with pytest.raises(UserError, match="E0415"):
            logarithm(td.tensor([-1.0]))
    assert flags.debug_nans == 0
    assert np.isnan(td.jit(logarithm)(td.tensor([-1.0])).item())


def test_a_gradient_that_only_goes_wrong_backward():
    def loss(x):
        return (x.sqrt() * 0).sum()  # back

    assert np.isnan(td.grad(loss)(td.tensor([0.0])).numpy()).all()
    td.debug_nans(True)
    for run in (td.grad(loss), td.jit(td.grad(loss))):
        with pytest.raises(UserError, match="E0415") as caught:
            run(td.tensor([0.0]))
        assert line_of(caught.value, "# back")


def test_infinities_only_when_asked_for():
    x = td.tensor([1.0, 0.0])
    with td.debug_nans():
        assert np.isinf((1 / x).numpy()[1])
        assert np.isinf(td.jit(lambda x: 1 / x)(x).numpy()[1])
    with td.debug_nans(inf=True):
        for run in (lambda x: 1 / x, td.jit(lambda x: 1 / x)):
            with pytest.raises(UserError, match=r"E0415 .*: 1 infinite among 2 elements"):
                run(x)


def test_operands_that_had_it_already_are_told():
    with td.debug_nans(), pytest.raises(UserError, match=r"x is f32\[2\] from 1 to 1 with 1 NaN") as caught:
        td.tensor([1.0, float("nan")]) * 2
    assert "where the operand comes from" in caught.value.fix


@pytest.mark.parametrize("dtype", [td.float16, td.bfloat16, td.float64, td.complex64])
def test_element_types(dtype):
    with td.debug_nans(), pytest.raises(UserError, match="E0415 div: 1 NaN among 1"):
        td.zeros(1, dtype=dtype) / td.zeros(1, dtype=dtype)


def test_inside_bodies_of_loops_and_branches():
    def body(total, x):
        return total + x.log(), None  # in the loop

    def run(xs):
        return td.scan(body, td.tensor(0.0), xs)[0]

    def choose(x):
        return td.cond(x > 1, lambda: x, lambda: (x - 1).log())  # in the branch

    td.debug_nans(True)
    for wrap in (lambda f: f, td.jit):
        with pytest.raises(UserError, match="E0415 log") as caught:
            wrap(run)(td.tensor([1.0, 2.0, -1.0]))
        assert line_of(caught.value, "# in the loop")
        with pytest.raises(UserError, match="E0415 log") as caught:
            wrap(choose)(td.tensor(0.5))
        assert line_of(caught.value, "# in the branch")


def test_state_is_kept_when_a_compiled_step_goes_wrong():
    net = nn.Linear(3, 1)
    opt = optim.Adam(net.parameters())

    @td.jit
    def step(x):
        value, grads = td.value_and_grad(lambda: net(x).log().sum(), net.parameters())()
        opt.step(grads)
        return value

    net.bias.assign(np.full(1, 5.0))
    good, bad = np.zeros((2, 3), np.float32), np.full((2, 3), -1e6, np.float32)
    bad *= np.sign(net.weight.numpy().sum())
    td.debug_nans(True)
    step(good)
    before = {k: v.numpy() for k, v in [*net.state_dict().items(), *opt.state_dict().items()]}
    with pytest.raises(UserError, match="E0415 log"):
        step(bad)
    after = {k: v.numpy() for k, v in [*net.state_dict().items(), *opt.state_dict().items()]}
    assert all(np.array_equal(before[k], after[k]) for k in before)
    step(good)
    assert opt.count.item() == 2


def test_what_op_by_op_does_not_repeat_is_said():
    with td.debug_nans(), pytest.raises(UserError, match="E0415 f: 1 NaN among 2 elements of its result 1, but not"):
        nans.refuse_unlocated("f", [np.zeros(2), np.array([0.0, np.nan])])


def test_programs_without_nan_give_the_same_numbers():
    x = td.tensor(np.linspace(0.1, 1, 7).astype(np.float32))
    plain = [logarithm(x).item(), td.jit(logarithm)(x).item(), td.grad(logarithm)(x).numpy()]
    with td.debug_nans(inf=True):
        checked = [logarithm(x).item(), td.jit(logarithm)(x).item(), td.grad(logarithm)(x).numpy()]
    assert plain[:2] == checked[:2]
    assert np.allclose(plain[2], checked[2], rtol=1e-6)


# ------------------------------------------------------------------------------------------------------ deterministic
def test_deterministic_reaches_the_compile_options_and_so_the_cache_key():
    devices = [pjrt.default_device()]
    plain = pjrt.options_bytes(pjrt.options(devices))
    with td.deterministic():
        made = pjrt.options(devices)
        assert pjrt.options_bytes(made) != plain
        assert dict(made.env_option_overrides) == {"xla_gpu_deterministic_ops": True, "xla_gpu_autotune_level": 0}
    assert pjrt.options_bytes(pjrt.options(devices)) == plain


def test_programs_are_compiled_again_for_it():
    f = td.jit(lambda x: x * 3)
    f(td.ones(3))
    f(td.ones(3))
    assert len(f.programs()) == 1
    td.deterministic(True)
    f(td.ones(3))
    assert len(f.programs()) == 2
    f(td.ones(3))
    assert len(f.programs()) == 2


SCRIPT = """
import hashlib, numpy as np, treadle as td
from treadle import nn, optim
td.manual_seed(3)
net = nn.Sequential(nn.Embedding(50, 16), nn.Flatten(), nn.Linear(64, 8))
opt = optim.SGD(net.parameters(), lr=0.1)
ids = np.random.default_rng(0).integers(0, 50, (32, 4))
def step(ids):
    value, grads = td.value_and_grad(lambda: (net(ids) ** 2).mean(), net.parameters())()
    opt.step(grads)
    return value
for run in (step, td.jit(step)):
    for _ in range(3):
        run(ids)
print(hashlib.sha256(b"".join(p.numpy().tobytes() for p in net.parameters())).hexdigest())
"""


def test_two_processes_give_the_same_bits():
    """Repeated rows of the embedding are summed in its gradient; names and addresses differ between the processes."""
    environment = {**os.environ, "TREADLE_DETERMINISTIC": "1", "TREADLE_CACHE": "0"}
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT], env={**environment, "PYTHONHASHSEED": seed}, stdout=subprocess.PIPE
        )
        for seed in ("1", "2")
    ]
    found = {run.communicate(timeout=120)[0] for run in runs}
    assert [run.returncode for run in runs] == [0, 0]
    assert len(found) == 1
