"""Recurrent kernels against the formula in NumPy: shapes, directions, threads, targets, edges of memory."""

import numpy as np
import pytest
from tests.kernels.pages import at_page_end
from tests.kernels.test_attention import TARGETS, arrays_of, close, on_all_targets, slow

import treadle as td
from treadle import nn
from treadle.base.flags import override
from treadle.ir import interp
from treadle.ir.build import Builder
from treadle.ir.types import bf16, f32, f64
from treadle.kernels import engine, jit
from treadle.kernels.target import host
from treadle.kernels.templates import recurrent as template
from treadle.ops import sequences

SHAPES = {
    "lstm_fwd": ("TNG NH NH GH", 4),
    "lstm": ("TNG NH NH GH", 4),
    "lstm_grad": ("NH GH TNH TNG TNH NH", 4),
    "gru_fwd": ("TNG NH GH G", 3),
    "gru": ("TNG NH GH G", 3),
    "gru_grad": ("NH GH TNH TNF TNH", 3),
}


def body_of(name, kind, sizes, reverse=False):
    wanted, gates = SHAPES[name]
    steps, rows, hidden = sizes
    letters = {"T": steps, "N": rows, "H": hidden, "G": gates * hidden, "F": 4 * hidden}
    with Builder("body") as b:
        made = getattr(sequences, name)(
            *[b.param(kind[tuple(letters[c] for c in w)]) for w in wanted.split()], reverse=reverse
        )
        return b.finish(made if isinstance(made, tuple) else (made,))


def given(body, rng):
    """Numbers of the size they have in a network: weights of 1 / sqrt(H), gates between 0 and 1."""
    arrays = arrays_of(body.in_types, rng, 0.5)
    for i, a in enumerate(arrays):
        if a.ndim == 2 and a.shape[0] in (3 * a.shape[1], 4 * a.shape[1]):
            arrays[i] = (a.astype(np.float32) * 2 / np.sqrt(a.shape[1])).astype(a.dtype)
    return arrays


def run(body, arrays, target, threads=(1, 2), place=np.array):
    (plan,) = template.plans(body, target)
    kernel = plan.build()
    code = jit.load(kernel.text, target)
    results = []
    for count in threads:
        outs = [place(np.full(t.shape, 7, t.dtype.np)) for t in body.out_types]
        code.run([*arrays, *outs, place(np.full(kernel.workspace, 0xFF, np.uint8))], count)
        results.append(outs)
    for others in results[1:]:
        for a, b in zip(results[0], others, strict=True):
            assert a.tobytes() == b.tobytes()
    return results[0]


def check(name, kind, sizes, reverse, target, seed):
    body = body_of(name, kind, sizes, reverse)
    arrays = given(body, np.random.default_rng(seed))
    exact = interp.run(body_of(name, f64, sizes, reverse), *[a.astype(np.float64) for a in arrays])
    for found, wanted in zip(run(body, arrays, target), exact, strict=True):
        close(found, wanted, 1e-5 if kind is f32 else 4e-2)


@on_all_targets
@pytest.mark.parametrize("kind", [f32, bf16], ids=["f32", "bf16"])
@pytest.mark.parametrize("name", ["lstm_fwd", "lstm_grad", "gru_fwd", "gru_grad"])
@pytest.mark.parametrize("seed", [1, slow(2), slow(3)])
def test_random_shapes(seed, name, kind, target):
    rng = np.random.default_rng(seed)
    sizes = int(rng.integers(1, 6)), int(rng.integers(1, 40)), int(rng.integers(1, 80))
    check(name, kind, sizes, bool(seed % 2), target, seed)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 7, 16), slow((4, 32, 64)), slow((2, 13, 130))])
def test_sizes(name, sizes):
    for reverse in (False, True):
        check(name, f32, sizes, reverse, host(), 1)


@pytest.mark.parametrize("name", ["lstm_fwd", "lstm_grad", "gru_fwd", "gru_grad"])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_many_steps_on_threads_that_wait_for_each_other(name, threads):
    body = body_of(name, f32, (60, 16, 96))
    arrays = given(body, np.random.default_rng(2))
    alone = run(body, arrays, host(), threads=(1,))
    for _ in range(5):
        for a, b in zip(alone, run(body, arrays, host(), threads=(threads,)), strict=True):
            assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("kind", [f32, bf16], ids=["f32", "bf16"])
@pytest.mark.parametrize("name", ["lstm_fwd", "lstm_grad", "gru_fwd", "gru_grad"])
def test_nothing_is_touched_beyond_the_arrays(name, kind):
    body = body_of(name, kind, (3, 5, 18))
    arrays = [at_page_end(a) for a in given(body, np.random.default_rng(3))]
    for target in TARGETS.values():
        run(body, arrays, target, threads=(1,), place=at_page_end)


@on_all_targets
def test_nan_and_infinity_pass_as_in_numpy(target):
    body = body_of("lstm_fwd", f32, (3, 9, 20))
    x, h, c, w = given(body, np.random.default_rng(4))
    x[1, 3, 25] = np.nan  # a gate: its row from then on
    x[0, 5, :] = np.inf  # gates that are full
    x[0, 6, :] = -np.inf
    h[7, 2] = np.inf  # times weights of both signs
    c[8, 1] = -np.inf
    with np.errstate(all="ignore"):
        wanted = interp.run(body_of("lstm_fwd", f64, (3, 9, 20)), *[a.astype(np.float64) for a in (x, h, c, w)])
    for found, each in zip(run(body, [x, h, c, w], target), wanted, strict=True):
        close(found, each, 1e-5)


def test_what_is_not_taken_is_left_to_xla():
    assert not template.plans(body_of("lstm", f64, (3, 2, 4)), host())
    assert not template.plans(body_of("lstm", f32, (0, 2, 4)), host())
    with Builder("body") as b:
        values = [b.param(t) for t in body_of("lstm", f32, (3, 2, 4)).in_types]
        hs, c = sequences.lstm(*values, reverse=False)
        other = b.finish((hs + 1.0, c))
    assert not template.plans(other, host())


def test_a_cell_gives_its_states_alone_while_gradients_are_taken():
    cell, x = nn.LSTMCell(2, 3), td.Tensor(np.ones((4, 2), np.float32))

    def total(x):
        states = cell(x)
        assert len(states) == 2
        return states[0].sum()

    assert td.grad(total)(x).shape == (4, 2)


def test_the_engine_finds_the_template():
    assert engine.plans(body_of("lstm_fwd", f32, (3, 4, 8)))[0].name == "lstm_fwd of 8"


@pytest.mark.parametrize("layer", ["attention", "lstm", "gru"])
def test_gradients_of_layers_are_the_same_with_kernels_and_without(layer, monkeypatch):
    monkeypatch.setattr(engine, "_chosen", {})
    rng = np.random.default_rng(9)
    net = nn.MultiheadAttention(64, 4, batch_first=True) if layer == "attention" else getattr(nn, layer.upper())(64, 96)
    x = td.Tensor(rng.normal(size=(20, 24, 64)).astype(np.float32))
    params = net.parameters()

    def loss():
        y = net(x, x, x, is_causal=True)[0] if layer == "attention" else net(x)[0]
        return (y * y).sum()

    results = []
    for level in (0, 3):
        with override(fusion=level):
            value, grads = td.jit(lambda: td.value_and_grad(loss, params)())()
            results.append([value.numpy(), *[g.numpy() for g in grads]])
    for found, wanted in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * max(1, np.abs(wanted).max()))
    plans = [c.plan for c in engine._chosen.values()]
    assert sum(p.startswith(layer) for p in plans) == 2, plans  # forward and gradient
