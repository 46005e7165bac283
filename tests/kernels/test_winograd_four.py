"""Winograd's F(4x4, 3x3), and F(2x2, 3x3) of 16-bit floats: errors against float64, what is not finite, memory."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from tests.kernels.pages import at_page_end
from tests.kernels.test_conv import TARGETS, attributes, backward, forward, last, run, second, values

from treadle.ir import build, interp
from treadle.ir.types import bf16, f16, f32, f64
from treadle.kernels import jit
from treadle.kernels.kernel import Plan
from treadle.kernels.target import host
from treadle.kernels.templates import conv as template
from treadle.kernels.templates.conv_shape import data_gradient
from treadle.kernels.templates.conv_shape import forward as problem_of
from treadle.kernels.templates.conv_winograd import _of_form
from treadle.kernels.templates.conv_winograd_tiles import F2, F4, F5
from treadle.ops import activation
from treadle.ops.convolution import conv
from treadle.ops.reduce import broadcast_to

HIGH = {"precision": "high"}
CASES = [
    (2, 16, 32, (8, 14), ((1, 1), (1, 1))),
    (1, 33, 19, (9, 13), ((0, 2), (1, 0))),
    (3, 130, 67, (7, 5), ((1, 1), (1, 1))),
    (1, 5, 3, (1, 1), ((1, 1), (1, 1))),
    (5, 40, 17, (3, 4), ((2, 2), (2, 1))),
    (1, 64, 48, (21, 1), ((0, 0), (1, 1))),
]


def made(body, form, target=None):
    """Plans of a form, whatever is expected of them, and the direct kernels'."""
    target = target or host()
    found = template.read(body)
    problem = (problem_of if found.anchor.op is conv else data_gradient)(found.spec)
    sizes = {"n": problem.n, "o": problem.target[2], "h": problem.target[0], "w": problem.target[1]}
    tail = template._tail(found, sizes, "o", target) or template._tail(found, sizes, "w", target)
    ours = [
        Plan(str(s), partial(template._make_winograd, found, problem, s, tail, found.operands[0].planar, target))
        for s in _of_form(problem, target, form)
    ]
    return ours, [p for p in template.plans(body, target) if "winograd" not in p.name]


def directions(kind, n, c, o, size, padding=((1, 1), (1, 1))):
    """(function, types) of the outputs and of the data gradient. kind: a type, "high" for float32 of that precision."""
    attrs = attributes(padding=padding) | (HIGH if kind == "high" else {})
    kind = f32 if kind == "high" else kind
    out = tuple(a + sum(p) - 2 for a, p in zip(size, padding, strict=True))
    w = kind[o, c, 3, 3]
    return [(forward(attrs), [kind[n, *size, c], w]), (backward(attrs, size), [kind[n, *out, o], w])]


def errors(got, want):
    """The largest and the mean one, for the largest and the mean number."""
    apart = got.astype(np.float64) - want
    return np.abs(apart).max() / np.abs(want).max(), np.sqrt((apart**2).sum() / (want**2).sum())


def check(kind, fn, types, form, target=None, threads=1, most=1):
    """16 bits: not 1.05 times the errors of the direct kernel; float32: not 4 times, and not 2e-5."""
    body = build.trace(fn, types)
    arrays = values(types, 0)
    wide = build.trace(fn, [f64[t.shape] for t in types])
    want = interp.run(wide, *[a.astype(np.float64) for a in arrays])
    ours, direct = made(body, form, target)
    known = run(direct[0].build(), arrays, target)
    assert ours
    for plan in ours[:most]:
        for got, ref, exact in zip(run(plan.build(), arrays, target, threads), known, want, strict=True):
            for own, limit in zip(errors(got, exact), errors(ref, exact), strict=True):
                assert own < (min(max(4 * limit, 1e-6), 2e-5) if kind == "high" else 1.05 * limit), plan.name


@pytest.mark.parametrize("form", [F2, F4, F5])
@pytest.mark.parametrize("kind", [bf16, f16, "high"])
def test_errors(kind, form):
    if kind == "high" and form is F5:
        return  # is not offered
    for case in CASES if kind is bf16 and form is not F2 else CASES[1:2]:
        for fn, types in directions(kind, *case):
            check(kind, fn, types, form, threads=2)


def test_errors_of_many_channels_by_every_plan():
    for kind in (bf16, "high"):
        for fn, types in directions(kind, 1, 300, 130, (5, 6))[kind is bf16 :]:
            check(kind, fn, types, F4, most=9)


@pytest.mark.parametrize("name", list(TARGETS)[1:])
def test_cpus_that_have_less(name):
    for number, kind in enumerate((bf16, f16, "high")):
        fn, types = directions(kind, 1, 21, 35, (9, 6))[number % 2]
        check(kind, fn, types, F4 if kind == "high" else (F4, F5)[len(name) % 2], TARGETS[name])


def test_what_follows_and_channels_second():
    attrs = attributes()

    def close(x, w, b, r):
        y = last(conv(second(x), w, **attrs))
        return activation.relu(y + broadcast_to(b, shape=y.shape) + r), y

    check(bf16, close, [bf16[3, 7, 9, 24], bf16[40, 24, 3, 3], bf16[40], bf16[3, 7, 9, 40]], F4)
    check(bf16, lambda x, w: conv(x, w, **attrs), [bf16[3, 25, 7, 19], bf16[40, 25, 3, 3]], F4, threads=2)
    check("high", lambda x, w: conv(x, w, **attrs, **HIGH), [f32[3, 25, 7, 19], f32[40, 25, 3, 3]], F4)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("special", [np.nan, -np.inf, 3e38])
def test_what_is_not_finite_is_where_the_direct_kernel_has_it(which, special):
    """In images and in weights; numbers that overflow when they are added or multiplied."""
    for kind in (bf16, "high"):
        for fn, types in directions(kind, 2, 20, 35, (11, 10))[which : which + 1]:
            body, arrays = build.trace(fn, types), values(types, 3)
            some = arrays[which].reshape(-1)
            some[np.random.default_rng(0).integers(0, some.size, 7)] = special
            if abs(special) < np.inf:
                arrays[1 - which] *= np.array(1e3, arrays[0].dtype)
            ours, direct = made(body, F4 if kind == "high" else F5)
            got, want = (run(p.build(), arrays)[0].astype(np.float32) for p in (ours[0], direct[0]))
            odd = ~np.isfinite(got) | ~np.isfinite(want)
            np.testing.assert_array_equal(got[odd], want[odd])
            assert odd.any()


def test_where_all_is_large_results_are_those_of_the_direct_kernel():
    for fn, types in directions("high", 1, 9, 35, (6, 7)):
        body, arrays = build.trace(fn, types), values(types, 5)
        ours, direct = made(body, F4)
        for sizes in ((1e30, 3e7), (3e7, 1e30)):
            large = [a * np.float32(s) for a, s in zip(arrays, sizes, strict=True)]
            got, want = (run(p.build(), large)[0] for p in (ours[0], direct[0]))
            np.testing.assert_array_equal(got, want)
            assert 0 < np.isfinite(want).sum() < want.size


@pytest.mark.parametrize("size", [1e14, 1e15, 3e15, 1e16])
def test_nothing_overflows_just_below_what_counts_as_large(size):
    """All numbers of one size and sign pattern: sums grow as much as they can."""
    for (fn, types), kind in [(d, k) for k in ("high", bf16) for d in directions(k, 1, 64, 17, (6, 7))]:
        body = build.trace(fn, types)
        for signs in ((1, 1), (1, -1)):
            arrays = [np.full(t.shape, size).astype(t.dtype.np) for t in types]
            for a in arrays:
                a[..., 1::2] *= signs[1]
            ours, direct = made(body, F4 if kind == "high" else F5)
            got, want = (run(p.build(), arrays)[0].astype(np.float64) for p in (ours[0], direct[0]))
            assert np.isfinite(got).all()
            if kind == "high":
                assert errors(got, want)[0] < 1e-5
            else:  # sums may be 0
                assert np.abs(got - want).max() < 1e-2 * np.abs(want).max(initial=64 * size**2)


def test_nothing_is_read_behind_an_array_and_threads_change_nothing():
    attrs = attributes()
    bodies = [*directions(bf16, 1, 21, 19, (7, 5)), *directions("high", 2, 21, 40, (7, 5))]
    bodies.append((lambda x, w: conv(x, w, **attrs), [bf16[1, 21, 7, 5], bf16[19, 21, 3, 3]]))
    for fn, types in bodies:
        body, arrays = build.trace(fn, types), values(types, 1)
        for form in (F2, F4, F5) if types[0].dtype is bf16[()].dtype else (F4,):
            kernel = made(body, form)[0][0].build()
            outs = [at_page_end(np.zeros(o.shape, o.dtype.np)) for o in body.out_types]
            work = at_page_end(np.zeros(kernel.workspace, np.uint8))
            jit.load(kernel.text).run([*[at_page_end(a) for a in arrays], *outs, work])
            for threads in (1, 2):
                np.testing.assert_array_equal(outs[0], run(kernel, arrays, threads=threads)[0])


def test_many_weights_are_written_past_the_caches_wherever_the_workspace_begins():
    fn, types = directions(bf16, 1, 192, 160, (4, 5))[0]
    body, arrays = build.trace(fn, types), values(types, 1)
    kernel = made(body, F4, replace(host(), l2=1 << 18))[0][0].build()
    assert "nontemporal" in kernel.text
    results = []
    for offset in (0, 4, 16):
        room = np.full(kernel.workspace + 128, 255, np.uint8)
        start = -room.ctypes.data % 64 + offset
        out = np.zeros(body.out_types[0].shape, arrays[0].dtype)
        jit.load(kernel.text).run([*arrays, out, room[start : start + kernel.workspace]])
        results.append(out)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    np.testing.assert_array_equal(results[0], run(made(body, F4)[0][0].build(), arrays)[0])


def test_where_it_is_offered():
    plain = host().without("amx-tile")

    def names(kind, c, size, target=plain, n=8):
        fn, types = directions(kind, n, c, c, size)[0]
        return [p.name for p in template.plans(build.trace(fn, types), target)]

    def four(name):
        return "winograd of 4" in name

    assert four(names("high", 64, (28, 28))[0])
    assert not any(map(four, names(f32, 64, (28, 28))))
    for kind in (bf16, f16):
        assert four(names(kind, 64, (28, 28))[0])
        assert not any("winograd" in n for n in names(kind, 4, (28, 28))[:1])
    assert "winograd" not in names(bf16, 512, (7, 7), n=1)[0]
    if host().has("avx512bf16"):
        amx = replace(host(), features=host().features | {"amx-tile", "amx-bf16"})
        found = names(bf16, 64, (28, 28), amx)
        assert "amx" in found[0] and any("winograd" in n for n in found)
