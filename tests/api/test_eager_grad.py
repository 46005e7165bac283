"""Gradients in eager mode: the function runs on numbers, under a tape."""

import gc
import sys
import threading
import weakref
from functools import partial

import numpy as np
import pytest

import treadle as td
from treadle import UserError, nn
from treadle.api import eager_grad
from treadle.frontend import tape as taping
from treadle.runtime import pjrt

f64 = np.float64


def t(*values):
    return td.Tensor(np.array(values, f64))


def big(n=70_000, seed=0):
    """An array above the limit of the host path."""
    return td.Tensor(np.random.default_rng(seed).normal(size=n))


def test_numbers_are_there_while_the_function_runs(capsys):
    def loss(x):
        total = x.sum()
        print("total", float(total))
        return total * 2 if total > 3 else total * 5

    assert td.grad(loss)(t(1, 3)).tolist() == [2, 2]
    assert td.grad(loss)(t(1, 1)).tolist() == [5, 5]
    assert capsys.readouterr().out == "total 4.0\ntotal 2.0\n"


@pytest.mark.parametrize("make", [lambda: t(1, 2, 3), big], ids=["host", "device"])
def test_a_tensor_is_not_taken_for_another_with_the_same_array(make):
    online, target = td.Parameter(make()), td.Parameter(make())
    target.assign(online)
    assert target._value is online._value
    (found,) = td.value_and_grad(lambda: (online * target.detach() + target * 3).sum(), [online])()[1]
    np.testing.assert_allclose(found.numpy(), target.numpy())
    np.testing.assert_array_equal(target.numpy(), online.numpy())


@pytest.mark.parametrize("make", [lambda: t(1, 2, 3), big], ids=["host", "device"])
def test_a_captured_tensor_passed_as_argument_is_apart(make):
    x = make()
    np.testing.assert_allclose(td.grad(lambda a: (a * x).sum())(x).numpy(), x.numpy())
    first, second = td.grad(lambda a, b: (a * 2 + b * 3).sum(), (0, 1))(x, x)
    assert (first.numpy() == 2).all() and (second.numpy() == 3).all()


def test_copies_and_views_keep_their_gradient():
    def loss(x):
        y = x.copy()
        z = y.reshape(2, 2).T.reshape(-1)
        z = z.astype(td.float64)
        return (z * t(1, 2, 3, 4)).sum()

    assert td.grad(loss)(t(1, 1, 1, 1)).tolist() == [1, 3, 2, 4]


def test_in_place_changes():
    def loss(x):
        x += 1
        y = x
        y[0] = y[1] * 3
        return (x * x).sum()

    x = t(1, 2)
    assert td.grad(lambda a: loss(a * 1))(x).tolist() == [0, 2 * 3 * 10]
    assert x.tolist() == [1, 2]
    assert td.grad(loss)(x).tolist() == [0, 60]
    assert x.tolist() == [9, 3], "what the function writes into its argument is written into the caller's"


def test_arguments_that_are_also_read_from_outside_must_not_change():
    x = t(1, 2)

    def loss(a):
        a += x
        return a.sum()

    with pytest.raises(UserError, match="E0212"):
        td.grad(loss)(x)


def test_unread_tensors_repeats_and_results_that_are_arguments():
    a, b = td.Parameter(t(1, 2)), td.Parameter(t(3))
    value, (da, db, again) = td.value_and_grad(lambda: (a * 2).sum(), [a, b, a])()
    assert (value.item(), da.tolist(), db.tolist(), again.tolist()) == (6, [2, 2], [0], [2, 2])
    value, grad = td.value_and_grad(lambda x: x)(td.Tensor(np.float64(4)))
    assert (value.item(), grad.item()) == (4, 1)
    (loss, aux), grad = td.value_and_grad(lambda x: (x.sum(), {"x": x, "n": 3}), has_aux=True)(t(1, 2))
    assert aux["n"] == 3 and aux["x"].tolist() == [1, 2] and grad.tolist() == [1, 1] and loss.item() == 3


def test_stop_gradient_and_constants():
    x = t(1, 2)
    assert td.grad(lambda a: (td.stop_gradient(a) * a).sum())(x).tolist() == [1, 2]
    assert td.grad(lambda a: (np.array([2.0, 3.0]) * a * 2.5).sum())(x).tolist() == [5, 7.5]


def test_ops_with_residuals_and_state():
    layers = nn.BatchNorm1d(8), nn.GELU(), nn.LayerNorm(8), nn.Dropout(0.5)
    net = nn.Sequential(nn.Linear(6, 8), *layers, nn.Linear(8, 3))
    x = td.Tensor(np.random.default_rng(0).normal(size=(16, 6)).astype("f4"))
    y = td.Tensor(np.arange(16) % 3)
    step = td.value_and_grad(lambda: nn.functional.cross_entropy(net(x), y), net.parameters())
    start = {k: v.numpy() for k, v in net.state_dict().items()}
    td.manual_seed(3)
    value, grads = step()
    moved = {k: v.numpy() for k, v in net.state_dict().items()}
    assert any((moved[k] != start[k]).any() for k in start), "running statistics have moved"
    net.load_state_dict({k: td.Tensor(v) for k, v in start.items()})
    td.manual_seed(3)
    jitted, jitted_grads = td.jit(step)()
    np.testing.assert_allclose(value.numpy(), jitted.numpy(), rtol=1e-5)
    for a, b in zip(grads, jitted_grads, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-3, atol=1e-5)


def test_region_ops_jitted_parts_and_checkpoints():
    w = td.Parameter(t(0.5, -0.3))
    double = td.jit(lambda x: x * 2)

    def loss(x):
        y = td.cond(x.sum() > 0, lambda v: v * w, lambda v: v - w, x)
        z, _ = td.scan(lambda c, _: (td.sin(c) + w, c), y, length=3)
        return td.checkpoint(lambda v: (double(v) ** 3).sum())(z)

    both = td.value_and_grad(loss, [w])
    for x in (t(1, 2), t(-1, -2)):
        value, (grad,) = both(x)
        jitted, (jitted_grad,) = td.jit(both)(x)
        np.testing.assert_allclose(value.numpy(), jitted.numpy())
        np.testing.assert_allclose(grad.numpy(), jitted_grad.numpy())


def test_higher_orders_equal_compiled_ones_also_with_rules_that_are_not_the_derivative():
    @td.custom_gradient
    def odd(x):
        return x * x * x, lambda d: d * x * 7

    def first(x):
        return td.grad(lambda v: odd(v))(x)

    x = td.Tensor(np.float64(2))
    assert td.grad(first)(x).item() == td.jit(td.grad(first))(x).item()
    quartic = lambda v: (v * v * v * v).sum()
    third = td.grad(lambda v: td.grad(lambda u: td.grad(quartic)(u).sum())(v).sum())
    np.testing.assert_allclose(third(t(1, 2)).numpy(), [24, 48])


def test_a_loop_of_steps_keeps_one_program():
    w = td.Parameter(t(1, 2))
    step = td.value_and_grad(lambda s: (w * w * s).sum(), [w])
    step(1.0)
    before = len(eager_grad._backwards)
    for i in range(5):
        assert step(float(i))[1][0].tolist() == [2 * i, 4 * i]
    assert len(eager_grad._backwards) == before


def test_errors_name_the_line():
    with pytest.raises(UserError, match="E0306"):
        td.grad(lambda x: x * 2)(t(1, 2))
    with pytest.raises(UserError, match="E0305"):
        td.grad(lambda x: x.sum())(td.Tensor([1, 2]))
    with pytest.raises(UserError, match="E0307"):
        td.value_and_grad(lambda: t(1).sum(), ["w"])()
    with pytest.raises(UserError) as caught:
        td.grad(lambda x: td.nextafter(x, x).sum())(t(1, 2))
    assert caught.value.where is not None and caught.value.where.file == __file__


def test_an_exception_leaves_everything_as_it_was():
    w = td.Parameter(t(1, 2))
    keep = w._value
    other = td.Parameter(t(1, 2))
    other.assign(w)

    def loss():
        (w * 2).sum()
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        td.value_and_grad(loss, [w])()
    assert w._value is keep
    assert (w + 1).tolist() == [2, 3]


def in_threads(*works):
    """Run them at once, with as many changes of thread as there can be; what they raised is raised."""
    errors = []

    def guarded(work):
        try:
            work()
        except BaseException as error:
            errors.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=guarded, args=(w,)) for w in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    for error in errors:
        raise error


@pytest.mark.parametrize("make", [lambda: t(1, 2, 3), big], ids=["host", "device"])
def test_threads_differentiate_by_one_parameter(make):
    w, target = td.Parameter(make()), td.Parameter(make())
    target.assign(w)
    numbers = w.numpy()

    def work(factor):
        def loss():
            return (w * w * factor).sum() + (w.copy() * target * 2).sum()

        for _ in range(40):
            (grad,) = td.value_and_grad(loss, [w])()[1]
            np.testing.assert_allclose(grad.numpy(), 2 * numbers * factor + 2 * numbers)

    in_threads(*[partial(work, float(i)) for i in range(4)])
    assert not taping.owners


def test_another_thread_moves_the_arrays_to_the_device():
    def move(tensors):
        for x in tensors:
            td.cond(x.sum() > 0, lambda v: v * 2, lambda v: v, x)

    def work(tensors):
        grads = td.value_and_grad(lambda: sum((w * w).sum() + (w * 3).sum() for w in tensors), tensors)()[1]
        for w, grad in zip(tensors, grads, strict=True):
            np.testing.assert_allclose(grad.numpy(), 2 * w.numpy() + 3)

    for _ in range(5):
        ws = [td.Parameter(t(1, 2, 3)) for _ in range(4)]
        in_threads(partial(move, ws), partial(work, ws))


@pytest.mark.parametrize("compiled", [False, True])
def test_a_change_by_another_thread_is_refused_not_taken_for_a_constant(compiled):
    w = td.Parameter(t(1, 2))

    def add():
        w.assign(w + 1)

    change = td.jit(add) if compiled else add
    change()

    def loss():
        first = (w * w).sum()
        in_threads(change)
        return first + (w * 3).sum()

    with pytest.raises(UserError, match="E0322"):
        td.value_and_grad(loss, [w])()
    np.testing.assert_allclose(w.numpy(), [3, 4])
    assert not taping.owners

    def late():
        value = (w * w).sum()
        in_threads(change)
        return value

    np.testing.assert_allclose(td.value_and_grad(late, [w])()[1][0].numpy(), [6, 8])  # not read afterwards


def test_what_keeps_an_argument_outlives_donation():
    kept = td.Parameter(big() * 0)
    x = big() * 2
    wanted = x.numpy()

    def loss(x):
        kept.assign(x)
        return (x * x).sum()

    @td.jit
    def step():
        kept.assign(kept * 3)

    td.grad(loss)(x)
    step()
    step()
    np.testing.assert_allclose(kept.numpy(), wanted * 9)
    np.testing.assert_allclose(x.numpy(), wanted)
    assert len(pjrt.twins) == 0, "the state has memory of its own by now"


def test_equal_arrays_among_the_results_of_one_call_are_told_apart():
    tape = taping.Tape()
    for array in (np.ones(2), (big() * 1)._value):
        first, second = tape.record(None, [], [array, array])
        assert first is not second
        assert [tape.place(first), tape.place(second)] == [len(tape.values) - 2, len(tape.values) - 1]


def test_arrays_are_let_go():
    kept = []
    gc.disable()
    try:

        def loss(x):
            y = td.sin(x * 2)
            kept.append(weakref.ref(y))
            return (y * y).sum()

        td.grad(loss)(big())
        with pytest.raises(ValueError, match="mine"):
            td.grad(lambda x: loss(x) + int("mine"))(big())
        assert all(ref() is None for ref in kept)
    finally:
        gc.enable()
