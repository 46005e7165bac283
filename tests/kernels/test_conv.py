"""Convolution kernels against the ops' own meaning: sizes, layouts, what follows, CPUs with less, borders of memory."""

import numpy as np
import pytest
from tests.kernels.pages import at_page_end

from treadle.ir import build, interp
from treadle.ir.types import TensorType, bf16, f16, f32, f64
from treadle.kernels import jit
from treadle.kernels.target import host
from treadle.kernels.templates import conv as template
from treadle.kernels.templates.conv import plans
from treadle.ops import activation
from treadle.ops.casting import cast
from treadle.ops.convolution import conv, conv_input_grad, conv_weight_grad
from treadle.ops.reduce import broadcast_to, reduce_sum
from treadle.ops.shape import reshape, transpose

TARGETS = {
    "host": host(),
    "no pairs": host().without("avx512bf16"),
    "avx2": host().without("avx512f"),
    "plain": host().without("avx512f", "avx2", "fma", "avx", "f16c"),
}


def second(v):
    """Channels last to channels second."""
    return transpose(v, perm=(0, 3, 1, 2))


def last(v):
    return transpose(v, perm=(0, 2, 3, 1))


def out_size(size, kernel, attrs):
    return tuple(
        (n + sum(p) - d * (k - 1) - 1) // s + 1
        for n, k, p, s, d in zip(size, kernel, attrs["padding"], attrs["stride"], attrs["dilation"], strict=True)
    )


def attributes(stride=1, padding=((1, 1), (1, 1)), dilation=1, groups=1):
    stride, dilation = (x if isinstance(x, tuple) else (x, x) for x in (stride, dilation))
    return {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}


def values(types, seed, special=()):
    rng = np.random.default_rng(seed)
    found = []
    for i, t in enumerate(types):
        x = rng.normal(size=t.shape).astype(np.float32)
        if i in special:
            x.reshape(-1)[rng.integers(0, x.size, 3)] = [np.nan, np.inf, -np.inf]
        found.append(x.astype(t.dtype.np))
    return found


def run(kernel, arrays, target=None, threads=1):
    """The outputs; what lies around them must stay as it was."""
    code = jit.load(kernel.text, target)
    guarded = [np.full(t.size + 256, -7, t.dtype.np) for t in kernel.outputs]
    outs = [g[128 : 128 + t.size].reshape(t.shape) for g, t in zip(guarded, kernel.outputs, strict=True)]
    work = np.full(kernel.workspace, 255, np.uint8)  # NaN in every type
    code.run([*arrays, *outs, work], threads)
    for g in guarded:
        assert (g[:128] == -7).all() and (g[-128:] == -7).all()
    return outs


def check(fn, types, target=None, threads=1, most=2, special=(), seed=0):
    """All of the first plans give what the interpreter gives."""
    body = build.trace(fn, types)
    found = plans(body, target or host())
    assert found, "no plan"
    arrays = values(types, seed, special)
    with np.errstate(all="ignore"):
        want = interp.run(body, *arrays)
    for plan in found[:most]:
        kernel = plan.build()
        for got, ref, t in zip(run(kernel, arrays, target, threads), want, body.out_types, strict=True):
            ref = ref.astype(np.float64)
            scale = np.abs(ref[np.isfinite(ref)]).max(initial=1e-3)
            limit = {"f32": 4e-6, "bf16": 1.2e-2, "f16": 2e-3}[t.dtype.short]
            np.testing.assert_allclose(got.astype(np.float64), ref, rtol=0, atol=limit * scale, err_msg=plan.name)


def forward(attrs):
    return lambda x, w: last(conv(second(x), w, **attrs))


def backward(attrs, size):
    return lambda dy, w: last(conv_input_grad(second(dy), w, input_size=size, **attrs))


def weights(attrs, kernel):
    return lambda x, dy: conv_weight_grad(second(x), second(dy), kernel_size=kernel, **attrs)


def all_three(t, n, c, o, size, kernel, attrs, special=(), **how):
    """special: operands of the convolution that have NaN and infinity in some places; those of gradients have them in
    their images: what the reference does with infinite weights beyond the border is not what a product with 0 gives."""
    out = out_size(size, kernel, attrs)
    w = t[o, c // attrs["groups"], *kernel]
    check(forward(attrs), [t[n, *size, c], w], special=special, **how)
    check(backward(attrs, size), [t[n, *out, o], w], special=special[:1], **how)
    check(weights(attrs, kernel), [t[n, *size, c], t[n, *out, o]], special=special, **how)


CASES = [
    (2, 16, 32, (8, 14), (3, 3), attributes()),
    (1, 33, 19, (9, 13), (3, 3), attributes(stride=2)),
    (3, 40, 70, (7, 7), (1, 1), attributes(padding=((0, 0), (0, 0)))),
    (2, 3, 17, (23, 22), (7, 7), attributes(stride=2, padding=((3, 3), (3, 3)))),
    (2, 20, 12, (6, 9), (1, 1), attributes(stride=2, padding=((0, 0), (0, 0)))),
    (1, 6, 10, (11, 12), (2, 3), attributes(stride=(2, 3), padding=((1, 2), (0, 1)), dilation=(1, 2), groups=2)),
    (2, 5, 1, (10, 9), (3, 5), attributes(padding=((-1, 2), (3, -2)))),
    (1, 1, 35, (1, 31), (1, 4), attributes(stride=3, padding=((0, 0), (5, 5)))),
    (1, 130, 5, (2, 3), (3, 3), attributes(dilation=2, padding=((2, 2), (2, 2)))),
    (1, 12, 24, (5, 5), (3, 3), attributes(groups=4)),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_sizes(case):
    all_three((f32, bf16)[case % 2], *CASES[case], most=1)


@pytest.mark.slow
@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("t", [f32, bf16], ids=["f32", "bf16"])
def test_sizes_by_every_plan(case, t):
    all_three(t, *CASES[case], most=9)


@pytest.mark.parametrize("name", list(TARGETS)[1:])
@pytest.mark.parametrize("t", [f32, bf16, f16], ids=["f32", "bf16", "f16"])
def test_cpus_that_have_less(name, t):
    attrs = attributes(stride=(2, 1), padding=((1, 2), (0, 1)))
    all_three(t, 1, 17, 33, (6, 9), (3, 2), attrs, target=TARGETS[name], most=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(TARGETS)[1:])
@pytest.mark.parametrize("t", [f32, bf16, f16], ids=["f32", "bf16", "f16"])
def test_more_on_cpus_that_have_less(name, t):
    for case in (1, 5, 7):
        all_three(t, *CASES[case], target=TARGETS[name])
    all_three(t, 1, 9, 9, (7, 6), (3, 3), attributes(groups=9, stride=(1, 2)), target=TARGETS[name])


@pytest.mark.parametrize("seed", [0, 1, *[pytest.param(i, marks=pytest.mark.slow) for i in range(2, 30)]])
def test_random_sizes(seed):
    rng = np.random.default_rng(seed)
    groups = int(rng.choice([1, 1, 2, 3]))
    c, o = (int(rng.integers(1, 130 // groups)) * groups for _ in range(2))
    size = tuple(int(n) for n in rng.integers(5, 40, 2))
    kernel = tuple(int(n) for n in rng.integers(1, 5, 2))
    padding = tuple((int(a), int(b)) for a, b in rng.integers(0, 3, (2, 2)))
    stride = tuple(int(n) for n in rng.integers(1, 4, 2))
    attrs = attributes(stride, padding, 1, groups)
    all_three(f32 if seed % 2 else bf16, int(rng.integers(1, 4)), c, o, size, kernel, attrs, most=1, threads=2)


@pytest.mark.parametrize("stride, kernel", [(1, (3, 3)), (2, (3, 3)), ((1, 3), (5, 2))])
@pytest.mark.parametrize("t", [f32, bf16], ids=["f32", "bf16"])
def test_depthwise(t, stride, kernel):
    attrs = attributes(stride=stride, padding=((1, 2), (2, 0)), groups=37)
    all_three(t, 2, 37, 37, (9, 12), kernel, attrs, most=1)


@pytest.mark.parametrize("t", [f32, bf16], ids=["f32", "bf16"])
def test_channels_second(t):
    attrs, deep = attributes(), attributes(groups=21)
    for fn, types in [
        (lambda x, w: conv(x, w, **attrs), [t[2, 21, 9, 19], t[40, 21, 3, 3]]),
        (lambda x, w: last(conv(x, w, **attrs)), [t[2, 21, 9, 19], t[40, 21, 3, 3]]),
        (lambda d, w: conv_input_grad(d, w, input_size=(9, 19), **attrs), [t[2, 40, 9, 19], t[40, 21, 3, 3]]),
        (lambda x, d: conv_weight_grad(x, second(d), kernel_size=(3, 3), **attrs), [t[2, 21, 9, 19], t[2, 9, 19, 40]]),
        (lambda x, w: conv(x, w, **deep), [t[2, 21, 9, 19], t[21, 1, 3, 3]]),
    ]:
        check(fn, types, most=1)


def test_one_spatial_axis():
    attrs = {"stride": (2,), "padding": ((3, 1),), "dilation": (1,), "groups": 2}
    check(lambda x, w: conv(x, w, **attrs), [f32[2, 8, 33], f32[10, 4, 5]])
    attrs["stride"] = (1,)
    check(lambda d, w: conv_input_grad(d, w, input_size=(33,), **attrs), [f32[2, 10, 33], f32[10, 4, 5]])


@pytest.mark.parametrize("t, kernel", [(f32, (1, 1)), (bf16, (3, 3))], ids=["f32", "bf16"])
def test_what_follows(t, kernel):
    """Bias, residual, activation; several outputs; a cast; with channels last and second."""
    attrs = attributes(padding=((kernel[0] // 2,) * 2,) * 2)

    def close(x, w, b, r):
        y = last(conv(second(x), w, **attrs))
        y = y + broadcast_to(b, shape=y.shape)
        return activation.relu(y + r), y, cast(y * y, dtype="float32")

    types = [t[3, 7, 9, 24], t[40, 24, *kernel], t[40], t[3, 7, 9, 40]]
    check(close, types)

    def far(x, w, b, r):
        y = conv(x, w, **attrs)
        return activation.relu(y + broadcast_to(reshape(b, shape=(1, 40, 1, 1)), shape=y.shape)) * r

    check(far, [t[3, 24, 7, 19], t[40, 24, *kernel], t[40], t[3, 40, 7, 19]])

    def update(x, dy, w):
        return w - conv_weight_grad(second(x), second(dy), kernel_size=kernel, **attrs) * 0.125

    check(update, [t[3, 7, 9, 24], t[3, 7, 9, 40], t[40, 24, *kernel]])


def test_after_a_strided_gradient_and_after_depthwise():
    attrs = attributes(stride=2)

    def grad(dy, w, r):
        return last(conv_input_grad(second(dy), w, input_size=(9, 11), **attrs)) * r

    check(grad, [f32[2, 5, 6, 40], f32[40, 24, 3, 3], f32[2, 9, 11, 24]])
    deep = attributes(groups=24)
    types = [f32[2, 9, 13, 24], f32[24, 1, 3, 3], f32[24]]
    check(
        lambda x, w, b: activation.relu(last(conv(second(x), w, **deep)) + broadcast_to(b, shape=(2, 9, 13, 24))), types
    )
    types = [f32[2, 9, 13, 24], f32[2, 9, 13, 24], f32[24, 1, 3, 3]]
    check(lambda x, d, w: w - conv_weight_grad(second(x), second(d), kernel_size=(3, 3), **deep), types)


@pytest.mark.parametrize("t", [f32, bf16], ids=["f32", "bf16"])
def test_nan_and_infinity_go_where_they_belong(t):
    """In particular not to results that do not read them: odd widths leave half a pair unused."""
    for case in (1, 4):
        all_three(t, *CASES[case], special=(0, 1), most=1)
    all_three(t, 1, 9, 9, (7, 7), (3, 3), attributes(groups=9), special=(0, 1), most=1)


@pytest.mark.parametrize("t", [f32, bf16], ids=["f32", "bf16"])
def test_any_number_of_threads_gives_the_same(t):
    attrs, kernel = attributes(), (3, 3)
    types = [t[4, 13, 13, 40], t[4, 13, 13, 24]]
    arrays = values(types, 3)
    for plan in plans(build.trace(weights(attrs, kernel), types), host())[:2]:
        made = plan.build()
        one, two, five = (run(made, arrays, threads=n)[0] for n in (1, 2, 5))
        assert one.tobytes() == two.tobytes() == five.tobytes()


@pytest.mark.parametrize("t", [f32, bf16], ids=["f32", "bf16"])
def test_nothing_is_read_behind_an_array(t):
    attrs, deep = attributes(), attributes(groups=21)
    bodies = [
        (forward(attrs), [t[1, 7, 5, 21], t[19, 21, 3, 3]]),
        (lambda x, w: conv(x, w, **attrs), [t[1, 21, 7, 5], t[19, 21, 3, 3]]),
        (forward(attributes(padding=((0, 0), (0, 0)))), [t[3, 5, 5, 32], t[19, 32, 1, 1]]),
        (backward(attrs, (7, 5)), [t[1, 7, 5, 19], t[19, 21, 3, 3]]),
        (weights(attrs, (3, 3)), [t[1, 7, 5, 21], t[1, 7, 5, 19]]),
        (weights(attributes(padding=((0, 0), (0, 0))), (1, 1)), [t[2, 3, 5, 32], t[2, 3, 5, 19]]),
        (forward(deep), [t[1, 7, 5, 21], t[21, 1, 3, 3]]),
        (weights(deep, (3, 3)), [t[1, 7, 5, 21], t[1, 7, 5, 21]]),
    ]
    for fn, types in bodies:
        body = build.trace(fn, types)
        arrays = values(types, 1)
        for plan in plans(body, host())[:1]:
            kernel = plan.build()
            outs = [at_page_end(np.zeros(o.shape, o.dtype.np)) for o in body.out_types]
            ends = [at_page_end(a) for a in arrays]
            work = at_page_end(np.zeros(kernel.workspace, np.uint8))
            jit.load(kernel.text).run([*ends, *outs, work])
            want = run(kernel, arrays)
            for got, ref in zip(outs, want, strict=True):
                np.testing.assert_array_equal(got, ref)


def test_images_too_wide_for_scratch_are_taken_row_by_row_or_not_at_all():
    def names(size, c, groups):
        body = build.trace(forward(attributes(groups=groups)), [f32[1, *size, c], f32[c, c // groups, 3, 3]])
        return [p.name for p in plans(body, host()) if "winograd" not in p.name]

    copied = [n for n in names((9, 1500), 300, 300) if n.endswith("copied")]
    assert copied and all("rows 1 " in n for n in copied)
    assert names((9, 3000), 300, 300) and not any(n.endswith("copied") for n in names((9, 3000), 300, 300))
    assert names((9, 7000), 300, 300) == names((1, 40000), 64, 1) == []


def test_what_is_not_taken():
    attrs = attributes()
    plain = [f32[1, 4, 5, 5], f32[4, 4, 3, 3]]
    for fn, types in [
        (lambda x, w: conv(x, w, **attrs), [f64[1, 4, 5, 5], f64[4, 4, 3, 3]]),
        (lambda x, w: conv(x, w, **attrs), [f32[0, 4, 5, 5], f32[4, 4, 3, 3]]),
        (lambda x, w: conv(conv(x, w, **attrs), w, **attrs), plain),
        (lambda x, w: reduce_sum(conv(x, w, **attrs), axes=(0,)), plain),
        (lambda x, w: conv(x, transpose(w, perm=(1, 0, 2, 3)), **attrs), plain),
    ]:
        assert plans(build.trace(fn, types), host()) == []
    assert template.read(build.trace(lambda x: x * 2.0, [TensorType(f32[1].dtype, (3,))])) is None
