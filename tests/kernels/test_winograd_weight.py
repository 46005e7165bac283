"""Winograd's weight gradients, of each form and of 16-bit floats: errors, shares of work, what is not finite."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from tests.kernels.pages import at_page_end
from tests.kernels.test_conv import TARGETS, attributes, run, second, values, weights
from tests.kernels.test_winograd_four import CASES, HIGH, errors

from treadle.ir import build, interp
from treadle.ir.types import bf16, f16, f32, f64
from treadle.kernels import jit
from treadle.kernels.kernel import Plan
from treadle.kernels.target import host
from treadle.kernels.templates import conv as template
from treadle.kernels.templates import conv_finish
from treadle.kernels.templates.conv_winograd_tiles import F2, F4
from treadle.kernels.templates.conv_winograd_weight import _schedule
from treadle.ops.casting import cast
from treadle.ops.convolution import conv_weight_grad


def problem(kind, n, c, o, size, padding=((1, 1), (1, 1))):
    """(function, types). kind: a type, "high" for float32 of that precision."""
    attrs = attributes(padding=padding) | (HIGH if kind == "high" else {})
    kind = f32 if kind == "high" else kind
    out = tuple(a + sum(p) - 2 for a, p in zip(size, padding, strict=True))
    return weights(attrs, (3, 3)), [kind[n, *size, c], kind[n, *out, o]]


def made(body, form, target=None, **shares):
    """A kernel of a form, and a plan of conv_weight. shares: what its schedule has instead of what is expected to be
    the fastest."""
    target = target or host()
    found = template.read(body)
    spec, (x, dy) = found.spec, found.operands
    run = spec.channels * 9
    tail = conv_finish.read(body, found.anchor, {"o": spec.outputs, "r": run}, "r", (x.param, dy.param), target)
    sizes = (6, 2) if target.registers == 16 else (14, 2)
    schedule = replace(_schedule(spec, target, form, *sizes), **shares)
    ours = Plan(
        str(schedule),
        partial(template._make_winograd_weight, found, schedule, tail, (x.planar, dy.planar), target),
    )
    return ours.build(), [p for p in template.plans(body, target) if "winograd" not in p.name]


def check(kind, fn, types, form, target=None, threads=1, **shares):
    """16 bits: not 1.05 times the errors of the direct kernel; float32, also made from sums that are not rounded to 16
    bits in between: not 4 times, and not 2e-5."""
    body, arrays = build.trace(fn, types), values(types, 0)
    want = interp.run(build.trace(fn, [f64[t.shape] for t in types]), *[a.astype(np.float64) for a in arrays])
    ours, direct = made(body, form, target, **shares)
    known = run(direct[0].build(), arrays, target)
    for got, ref, exact in zip(run(ours, arrays, target, threads), known, want, strict=True):
        wide = kind in ("high", f32) or got.dtype == np.float32
        for own, limit in zip(errors(got, exact), errors(ref, exact), strict=True):
            assert own < (min(max(4 * limit, 1e-6), 2e-5) if wide else 1.05 * limit)


@pytest.mark.parametrize("form", [F2, F4])
@pytest.mark.parametrize("kind", [bf16, f16, "high"])
def test_errors(kind, form):
    for case in CASES if kind is bf16 and form is F4 else CASES[1:2]:
        check(kind, *problem(kind, *case), form, threads=2)


@pytest.mark.parametrize("splits,blocks,parts,tiles", [(1, 1, 1, 5), (1, 3, 2, 64), (4, 2, 3, 3), (7, 1, 5, 1)])
def test_however_the_work_is_shared(splits, blocks, parts, tiles):
    """Channels that fill neither vectors nor parts, outputs that do not fill blocks, tiles that do not fill units."""
    shares = {"splits": splits, "blocks": blocks, "parts": parts, "tiles": tiles}
    for form, kind in ((F2, f32), (F4, bf16)):
        check(kind, *problem(kind, 2, 150, 45, (9, 11)), form, threads=2, **shares)


@pytest.mark.parametrize("name", list(TARGETS)[1:])
def test_cpus_that_have_less(name):
    for kind in (bf16, f16, "high"):
        check(kind, *problem(kind, 2, 21, 35, (9, 6)), F4, TARGETS[name])


def test_many_places_are_as_exact():
    """Sums of many tiles stay as near as those of products."""
    check("high", *problem("high", 4, 32, 16, (56, 40)), F4)
    check(bf16, *problem(bf16, 4, 16, 17, (56, 40)), F4, splits=3)


def test_channels_second_and_what_follows():
    attrs = attributes()

    def update(x, dy, w):
        g = conv_weight_grad(x, second(dy), kernel_size=(3, 3), **attrs)
        return w - cast(g, dtype=f32[()].dtype) * 0.125

    for splits in (1, 2):
        fn, types = update, [bf16[3, 24, 7, 9], bf16[3, 7, 9, 40], f32[40, 24, 3, 3]]
        check(bf16, fn, types, F4, threads=2, splits=splits)
    fn = lambda x, dy: conv_weight_grad(x, dy, kernel_size=(3, 3), **attrs)
    types = [bf16[3, 65, 12, 27], bf16[3, 80, 12, 27]]  # the direct kernels take no such gradients of outputs
    body, arrays = build.trace(fn, types), values(types, 0)
    got = run(made(body, F4)[0], arrays, threads=2)[0]
    want = interp.run(build.trace(fn, [f64[t.shape] for t in types]), *[a.astype(np.float64) for a in arrays])[0]
    assert errors(got, want)[1] < 2e-3 and "winograd" in template.plans(body, host())[0].name


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, 3e38, -1e30])
def test_what_is_not_finite_is_where_the_direct_kernel_has_it(which, special):
    for kind, shares in ((bf16, {"blocks": 2, "parts": 2}), ("high", {"splits": 3}), (bf16, {"splits": 1})):
        fn, types = problem(kind, 2, 40, 35, (11, 10))
        body, arrays = build.trace(fn, types), values(types, 3)
        some = arrays[which].reshape(-1)
        some[np.random.default_rng(0).integers(0, some.size, 3)] = special
        if abs(special) < np.inf:
            arrays[1 - which] *= np.array(1e3, arrays[0].dtype)
        ours, direct = made(body, F4, **shares)
        got, want = (run(k, arrays)[0].astype(np.float32) for k in (ours, direct[0].build()))
        odd = ~np.isfinite(got) | ~np.isfinite(want)
        np.testing.assert_array_equal(got[odd], want[odd])
        assert odd.any() or special == -1e30


@pytest.mark.parametrize("sizes", [(1e14, 1e15), (3e15, 1e16), (1e19, 1e16), (1e-3, 1e37)])
def test_nothing_overflows_between(sizes):
    """All numbers of one size and sign pattern: sums grow as much as they can."""
    fn, types = problem("high", 1, 40, 17, (6, 7))
    body = build.trace(fn, types)
    for signs in ((1, 1), (1, -1)):
        arrays = [np.full(t.shape, size, np.float32) for t, size in zip(types, sizes, strict=True)]
        for a in arrays:
            a[..., 1::2] *= signs[1]
        ours, direct = made(body, F4)
        got, want = run(ours, arrays)[0], run(direct[0].build(), arrays)[0]
        assert np.isfinite(got).all() and errors(got, want.astype(np.float64))[0] < 1e-5


def test_nothing_is_read_behind_an_array_and_threads_change_nothing():
    attrs = attributes()
    bodies = [problem(bf16, 1, 37, 19, (7, 5)), problem("high", 2, 53, 40, (7, 5))]
    planar = lambda x, dy: conv_weight_grad(x, dy, kernel_size=(3, 3), **attrs)
    bodies.append((planar, [bf16[1, 37, 7, 5], bf16[1, 19, 7, 5]]))
    for fn, types in bodies:
        body, arrays = build.trace(fn, types), values(types, 1)
        for shares in ({"splits": 1, "blocks": 2}, {"splits": 2, "parts": 2}):
            kernel = made(body, F4, **shares)[0]
            outs = [at_page_end(np.zeros(o.shape, o.dtype.np)) for o in body.out_types]
            work = at_page_end(np.zeros(kernel.workspace, np.uint8))
            jit.load(kernel.text).run([*[at_page_end(a) for a in arrays], *outs, work])
            for threads in (1, 2):
                np.testing.assert_array_equal(outs[0], run(kernel, arrays, threads=threads)[0])


def test_where_it_is_offered():
    plain = host().without("amx-tile")

    def names(kind, c, size, target=plain, n=8, **how):
        fn, types = problem(kind, n, c, c, size)
        return [p.name for p in template.plans(build.trace(fn, types), target)]

    def four(name):
        return "winograd 4" in name

    assert four(names("high", 64, (28, 28))[0])
    assert not any(map(four, names(f32, 64, (28, 28)))) and "winograd 2" in names(f32, 64, (28, 28))[0]
    for kind in (bf16, f16):
        assert four(names(kind, 64, (28, 28))[0])
        assert not any("winograd" in n for n in names(kind, 4, (28, 28))[:1])
    for cores, channels in ((1, 256), (2, 1024), (64, 1024)):  # sums of all of it would be larger than the scratch
        assert four(names(bf16, channels, (28, 28), replace(plain, cores=cores), n=2)[0])
    if host().has("avx512bf16"):
        assert "winograd" not in names(bf16, 512, (2, 2))[0]
        amx = replace(host(), features=host().features | {"amx-tile", "amx-bf16"})
        found = names(bf16, 64, (28, 28), amx)
        assert "winograd" not in found[0] and any("winograd" in n for n in found)
