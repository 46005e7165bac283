"""Programs of equal layers: what becomes a part, in which order parts run, whose memory they take; numbers keep every
bit, for random layers too."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.transforms.support import assert_same_bits, module_of
from tests.transforms.test_outline import chain, gpt

from treadle.base.dtypes import float64
from treadle.ir import build, interp
from treadle.ir.host import Host
from treadle.ir.types import f64
from treadle.ir.verify import verify
from treadle.ops.creation import full
from treadle.ops.effects import host_call
from treadle.ops.elementwise import add, mul, neg, sub
from treadle.ops.functions import exp, sin, tanh
from treadle.ops.reduce import reduce_sum
from treadle.ops.shape import reshape, slice_
from treadle.transforms import parts
from treadle.transforms.grad import vjp
from treadle.transforms.parts import split
from treadle.transforms.pipeline import DEFAULT, Pipeline


@pytest.fixture(autouse=True)
def small_programs_too(monkeypatch):
    """The programs of these tests run for microseconds: starting a part shall cost nothing."""
    monkeypatch.setattr(parts, "RUN_S", 1e-15)
    monkeypatch.setattr(parts, "MIN_RUN_S", 0.0)
    monkeypatch.setattr(parts, "MIN_SHARE", 0.4)


def arguments(module, seed=0):
    rng = np.random.default_rng(seed)
    types = module.main.in_types
    drawn = [rng.normal(size=t.shape) if t.dtype.is_inexact else rng.integers(0, 9, t.shape) for t in types]
    return [np.asarray(a).astype(t.dtype.np) for a, t in zip(drawn, types, strict=True)]


def long(x, w):
    return tanh(add(mul(x, w), neg(exp(tanh(sub(x, mul(w, sin(x))))))))


def run(made, args):
    """What the parts compute, each by the interpreter. Nothing is read that was given up, and every slot is filled."""
    held, gone = dict(enumerate(args)), set()
    for step in made.runs:
        assert not gone & set(step.inputs)
        results = interp.run(made.programs[step.part].module, *[held[i] for i in step.inputs])
        held.update(zip(step.outputs, results, strict=True))
        gone |= set(step.frees)
    assert not gone & set(made.outputs)
    assert len(held) == made.slots
    return tuple([held[i] for i in made.outputs])


def check(module, donate=None):
    """The parts of a module, which must have some, and compute the same."""
    made = split(module, donate)
    assert made is not None
    for program in made.programs:
        verify(program.module)
    assert [sum(r.part == i for r in made.runs) for i in range(len(made.programs))] == [p.runs for p in made.programs]
    args = arguments(module)
    assert_same_bits(run(made, args), interp.run(module, *args))
    return made


def training(layers):
    """One step of gradient descent on a transformer: (x, parameters) -> (loss, new parameters), optimised."""
    forward = gpt(layers)
    gradients = vjp(forward).main

    def main(*args):
        (loss,) = build.inline(forward.main, args)
        grads = build.inline(gradients, [*args, full(value=1.0, shape=(), dtype=float64)])
        return [loss, *[sub(p, mul(g, 0.1)) for p, g in zip(args[1:], grads[1:], strict=True)]]

    return Pipeline.parse(DEFAULT).run(module_of(main, forward.main.in_types))


def test_a_training_step():
    """Each layer's parameters are given up to their update; the number of programs does not grow with depth."""
    made = {n: check(training(n), {i: i for i in range(1, 8 * n + 1)}) for n in (4, 9)}
    assert len(made[4].programs) == len(made[9].programs) <= 8
    assert max(len(p.module.main.nodes) for p in made[9].programs) < 80
    donated = sum(p.runs * len(p.donate) for p in made[9].programs)
    assert donated == 8 * 9, "every parameter's memory is used again"


def test_memory_is_taken_only_where_all_copies_may():
    """The first parameter is read once more in the end, so no copy of the layer may take the memory of its own."""

    def donations(again):
        def main(x, *ws):
            news = []
            for w in ws:
                x = long(x, w)
                news.append(tanh(mul(exp(tanh(sub(add(w, x), exp(x)))), sub(w, 2.0))))
            return [*news, add(x, ws[0]) if again else exp(x)]

        made = check(module_of(main, [f64[3]] * 6), {i: i - 1 for i in range(1, 6)})
        return sum(p.runs * len(p.donate) for p in made.programs)

    assert donations(again=False) == 5
    assert donations(again=True) == 0


def test_a_layer_with_another_constant_is_a_program_of_its_own():
    def other(x, w):
        return tanh(add(mul(x, w), neg(exp(tanh(sub(x, mul(w, exp(x))))))))

    made = check(module_of(chain(*[long] * 4, other, *[long] * 4), (f64[3],) * 10))
    assert sorted(p.runs for p in made.programs)[-2:] == [4, 4]


def test_what_stays_one_program(monkeypatch):
    same = chain(*[long] * 6)
    types = (f64[3],) * 7
    assert check(module_of(same, types))
    assert split(module_of(chain(*[long] * 2), (f64[3],) * 3)) is None
    assert split(module_of(lambda x, *ws: [same(x, *ws), x], types)) is None, "a result that is an argument"
    assert split(module_of(lambda x, *ws: [same(x, *ws)] * 2, types)) is None, "the same result twice"
    monkeypatch.setattr(parts, "RUN_S", 4e-5)
    assert split(module_of(same, types)) is None, "it runs for microseconds"


def test_effects_stay_in_one_program():
    host = Host.of(lambda x: None, "see")

    def seen(x, *ws):
        for w in ws:
            x = long(x, w)
            host_call(x, host=host)
        return x

    assert split(module_of(seen, (f64[3],) * 7)) is None


def counted(*places):
    """Layer i takes the numbers `places[i]` out of a vector, as the updates of optimisers do with their step counts."""

    def number(counts, i):
        return reshape(slice_(counts, starts=(i,), limits=(i + 1,), strides=(1,)), shape=())

    def main(x, counts, *ws):
        counts = add(counts, 1.0)
        numbers = [[number(counts, p) for p in layer] for layer in places]
        for w, (a, b) in zip(ws, numbers, strict=True):
            x = add(long(x, mul(w, a)), b)
        return [x, counts]

    size = 1 + max(p for layer in places for p in layer)
    return module_of(main, (f64[3], f64[size], *[f64[3]] * len(places)))


def pieces(*places):
    """Shapes of what the first program cuts out of the vector."""
    made = check(counted(*places))
    return [n.outputs[0].shape for p in made.programs for n in p.module.main.nodes if n.op.name == "slice"]


def test_numbers_of_a_vector_are_handed_over_together():
    assert pieces(*[(2 * i, 2 * i + 1) for i in range(6)]) == [(2,)] * 6
    assert pieces(*[(2 * i + 1, 2 * i) for i in range(6)]) == [(2,)] * 6
    assert pieces(*[(i, i) for i in range(6)]) == [(1,)] * 6


def test_numbers_at_other_distances_are_handed_over_singly():
    assert pieces((0, 1), (2, 3), (5, 4)) == [(1,)] * 6


OPS = (add, mul, sub, lambda a, b: tanh(sub(a, b)), lambda a, b: mul(sin(a), b), lambda a, b: add(a, mul(b, 0.5)))


@st.composite
def stacks(draw):
    """Layers of random ops, most of them equal; what a layer reads: its input, two parameters, a value for all."""
    steps = draw(st.lists(st.tuples(*[st.integers(0, 99)] * 3), min_size=9, max_size=16))
    layers = draw(st.integers(3, 7))
    odd = draw(st.sampled_from([None, *range(layers)]))
    tapped = draw(st.booleans())

    def main(x, common, *params):
        taps = []
        for i in range(layers):
            pool = [x, *params[2 * i : 2 * i + 2], common, full(value=0.25, shape=(3,), dtype=float64)]
            for op, a, b in steps:
                pool.append(OPS[(op + (i == odd)) % len(OPS)](pool[a % len(pool)], pool[b % len(pool)]))
            x = tanh(add(add(pool[-1], pool[-2]), mul(x, params[2 * i])))
            taps.append(pool[-3])
        return reduce_sum(add(x, sum(taps[1:], taps[0])) if tapped else x, axes=(0,))

    return module_of(main, [f64[3]] * (2 + 2 * layers))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(stacks())
def test_random_layers_and_their_gradients(module):
    for each in (module, Pipeline.parse(DEFAULT).run(vjp(module))):
        made = split(each)
        if made is not None:
            args = arguments(each)
            assert_same_bits(run(made, args), interp.run(each, *args))


def test_most_random_layers_are_split():
    """The test above is not empty."""
    found = []

    @settings(max_examples=30, deadline=None, derandomize=True, database=None)
    @given(stacks())
    def count(module):
        found.append(split(module) is not None)

    count()
    assert sum(found) >= 0.5 * len(found)
