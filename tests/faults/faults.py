"""The planted faults: small mistakes in rules and transforms, each with the tests that have to notice it.

`FAULTS` is data only; `run.py` plants one at a time in a copy of the package. A text must stand exactly once in its
file. Those of ops are here, the rest is in `compiler.py`, `kernels.py` and `python.py`; `Fault` is in `kinds.py`.
"""

from __future__ import annotations

from tests.faults.compiler import COMPILER
from tests.faults.convolutions import CONVOLUTIONS
from tests.faults.kernels import KERNELS
from tests.faults.kinds import GRAD, LOWER, RANDOM, Fault, of
from tests.faults.python import PYTHON

# ------------------------------------------------------------------------------------------------ gradients of ops
_GRADIENTS = [
    Fault(
        "sub passes d unchanged to y", "ops/elementwise.py", "return d, -d\n", "return d, d\n", of("sub"), quick=True
    ),
    Fault(
        "mul gives x its own value", "ops/elementwise.py", "return d * y, d * x\n", "return d * x, d * y\n", of("mul")
    ),
    Fault(
        "div forgets the sign for y", "ops/elementwise.py", "return dx, -(dx * out)", "return dx, dx * out", of("div")
    ),
    Fault("pow without y - 1", "ops/functions.py", "select(zero, 1, y - 1)", "select(zero, 1, y)", of("pow")),
    Fault("cos without the sign", "ops/functions.py", "return (-d * sin(x),)", "return (d * sin(x),)", of("cos")),
    Fault("sqrt twice as large", "ops/functions.py", "return (0.5 * d / y,)", "return (d / y,)", of("sqrt")),
    Fault(
        "maxima take all instead of sharing",
        "ops/reduce.py",
        "share = d / reduce_sum(hit, axes=axes)",
        "share = d",
        ("tests/ops/test_reduce.py", *of("reduce_max")),
    ),
    Fault(
        "broadcast_to sums only new axes",
        "ops/reduce.py",
        "if i < skip or (x.shape[i - skip] == 1 and n != 1))",
        "if i < skip or (x.shape[i - skip] == 1 and n > 3))",
        of("broadcast_to"),
    ),
    Fault(
        "cumsum runs the same way back",
        "ops/reduce.py",
        "return (cumsum(d, axis=axis, reverse=not reverse),)",
        "return (cumsum(d, axis=axis, reverse=reverse),)",
        of("cumsum"),
    ),
    Fault(
        "transpose back by the same order",
        "ops/shape.py",
        "return (transpose(d, perm=tuple([perm.index(i) for i in range(len(perm))])),)",
        "return (transpose(d, perm=perm if d.ndim == 3 and d.shape == x.shape else tuple([perm.index(i) for i in "
        "range(len(perm))])),)",
        of("transpose"),
    ),
    Fault(
        "slice forgets its strides",
        "ops/shape.py",
        "interior=tuple([stride - 1 for stride in strides]))",
        "interior=tuple([0 for stride in strides]))",
        of("slice"),
    ),
    Fault("pad's number gets nothing", "ops/shape.py", "pad(inside, True, low", "pad(inside, False, low", of("pad")),
    Fault(
        "concatenate starts again for each part",
        "ops/shape.py",
        "        start += x.shape[axis]\n    return tuple(parts)",
        "    return tuple(parts)",
        of("concatenate"),
    ),
    Fault(
        "take_along_axis scatters along another axis",
        "ops/index.py",
        "return scatter_add_along(zeros_like(x), indices, d, axis=axis), None",
        "return scatter_add_along(x, indices, d, axis=axis), None",
        of("take_along_axis"),
    ),
    Fault(
        "index_add drops the updates",
        "ops/index.py",
        "return d, None, zeros_like(updates) if updates.type.size == 0 else take(d, indices, axis=axis)",
        "return d, None, zeros_like(updates)",
        of("index_add"),
    ),
    Fault(
        "index_max gives d to every largest",
        "ops/_scatter.py",
        "share = wide(d) / (old + form.total(old, indices, new, axis))",
        "share = wide(d)",
        ("tests/frontend/test_scatter.py",),
    ),
    Fault(
        "index_mul leaves out the factors behind",
        "ops/_scatter.py",
        "before * flip(after, axes=(axis,))",
        "before",
        of("index_mul"),
    ),
    Fault(
        "index_set gives d to what was overwritten",
        "ops/scatter.py",
        "return op(d, indices, zeros_like(updates), axis=axis), None, back",
        "return d, None, back",
        of("index_set"),
    ),
    Fault(
        "hlo: index_set writes what is overwritten to place 0",
        "ops/scatter.py",
        "b.splat(size, of_i), types=of_i)",
        "b.splat(0, of_i), types=of_i)",
        of("index_set", "run"),
    ),
    Fault(
        "searchsorted stops one step early",
        "ops/searching.py",
        "    while step:",
        "    while step > 1:",
        of("searchsorted", "expand"),
    ),
    Fault(
        "resize_grad gives an element's share to its neighbour",
        "ops/_taps.py",
        "back[0][ins, rank], back[1][ins, rank] = outs, values",
        "back[0][ins, rank], back[1][ins, rank] = outs[::-1], values",
        of("resize resize_grad"),
    ),
    Fault(
        "resize reads elements without weight",
        "ops/resizing.py",
        "        if not weights.all():",
        "        if weights is None:",
        of("resize", "expand"),
    ),
    Fault(
        "fold puts the windows one place too far",
        "ops/patches.py",
        "        low = k * dilation",
        "        low = k * stride",
        of("fold", "expand run"),
    ),
    Fault(
        "conv_transpose pads the wrong end",
        "nn/functional/patches.py",
        "pairs = tuple([(p, p - e) for p, e in zip(sides, extra, strict=True)])",
        "pairs = tuple([(p - e, p) for p, e in zip(sides, extra, strict=True)])",
        ("tests/nn/test_spatial.py",),
    ),
    Fault(
        "max pooling's places count padding",
        "nn/functional/pooling_more.py",
        "np.arange(t, dtype=np.int32) * s - low).reshape",
        "np.arange(t, dtype=np.int32) * s).reshape",
        ("tests/nn/test_spatial.py",),
    ),
    Fault(
        "dynamic_slice writes at the wrong place",
        "ops/dynamic.py",
        "return dynamic_update_slice(zeros_like(x), d, *starts), *[None] * len(starts)",
        "return dynamic_update_slice(zeros_like(x), d, *starts[::-1]), *[None] * len(starts)",
        of("dynamic_slice"),
    ),
    Fault(
        "matmul without a transpose",
        "ops/products.py",
        "return d @ swap(y), swap(x) @ d",
        "return d @ swap(y), x @ d if x.shape == swap(x).shape else swap(x) @ d",
        ("tests/transforms/test_random_gradients.py", "tests/e2e/test_samples.py", *of("matmul")),
    ),
    Fault(
        "conv: sign of a second derivative",
        "ops/convolution.py",
        "return conv(d, w, **attrs), conv_weight_grad(d, dy, kernel_size=w.shape[2:], **attrs)",
        "return conv(d, w, **attrs), -conv_weight_grad(d, dy, kernel_size=w.shape[2:], **attrs)",
        of("conv conv_input_grad"),
    ),
    Fault(
        "max_pool: a later maximum wins",
        "ops/pool.py",
        "logical_not(greater_equal(best, part))",
        "greater_equal(part, best)",
        of("max_pool_grad max_pool_take", "expand run"),
    ),
    Fault(
        "softmax without the mean",
        "ops/norm.py",
        "return cast(p * (dp - widen(reduce_sum(p * dp, axes=(axis,)), p, (axis,))), dtype=y.dtype)",
        "return cast(p * (dp - widen(reduce_sum(dp, axes=(axis,)), p, (axis,))), dtype=y.dtype)",
        of("softmax"),
    ),
    Fault(
        "batch_norm: variance counted once",
        "ops/norm_batch.py",
        "tilt = (2.0 * dvar",
        "tilt = (1.0 * dvar",
        of("batch_norm"),
        quick=True,
    ),
    Fault(
        "attention without the softmax's mean",
        "ops/attentions.py",
        "ds = p * (dp - widen(reduce_sum(wide(d) * wide(y), axes=last), dp, last))",
        "ds = p * dp",
        of("attention"),
    ),
    Fault(
        "cross entropy: the label's class like the others",
        "ops/loss.py",
        "share - 1.0, share)",
        "share, share)",
        of("cross_entropy"),
    ),
    Fault(
        "lstm: forget and input gate exchanged",
        "ops/recurrent.py",
        "di, df, dg, do = inner * g, inner * wide(c), inner * i, d * t",
        "di, df, dg, do = inner * wide(c), inner * g, inner * i, d * t",
        of("lstm_cell"),
    ),
    Fault(
        "lstm over time: the gradient runs the same way",
        "ops/sequences.py",
        "[cs, _before(c, cs, reverse), gates, dh], not reverse)",
        "[cs, _before(c, cs, reverse), gates, dh], reverse)",
        of("lstm"),
    ),
    Fault(
        "gru over time: the state that is passed on is left out",
        "ops/sequences.py",
        "return d * z + _product(inner, w",
        "return _product(inner, w",
        of("gru"),
    ),
    Fault(
        "attention kernel: sums are not scaled to a new maximum",
        "kernels/templates/_attention_forward.py",
        "self.total[c].set(self.total[c].get() * shrink[c])",
        "self.total[c].set(self.total[c].get())",
        ("tests/kernels/test_attention.py",),
    ),
    Fault(
        "lstm kernel: a step does not wait for the one before",
        "kernels/templates/_recurrent.py",
        'with f.when(f.compare("sgt", step, 0)):',
        'with f.when(f.compare("sgt", step, 1 << 40)):',
        ("tests/kernels/test_recurrent.py",),
    ),
]

# ------------------------------------------------------------------------------------- the other rules of ops
_RULES = [
    Fault(
        "axes: matmul says the sum is kept",
        "ops/products.py",
        'axes="... m k, ... k n -> ... m n"',
        'axes="... m k, ... n k -> ... m n"',
        of("matmul", "axes"),
    ),
    Fault(
        "axes: a softmax axis may be split",
        "ops/norm.py",
        '"!" * (i == axis) + n',
        '"!" * (i == axis + 9) + n',
        of("softmax", "axes"),
    ),
    Fault(
        "axes: maxima add up",
        "ops/reduce.py",
        'ins = " ".join("!" * (i in axes) + n for i, n in enumerate(names))\n    return f"{ins}',
        'ins = " ".join(n for i, n in enumerate(names))\n    return f"{ins}',
        of("reduce_max", "axes"),
    ),
    Fault(
        "axes: transpose keeps the order",
        "ops/shape.py",
        '" ".join(names[p] for p in perm)',
        '" ".join(names)',
        of("transpose", "axes"),
    ),
    Fault(
        "type: transpose keeps the shape",
        "ops/shape.py",
        "return x.with_shape(tuple([x.shape[p] for p in perm]))",
        "return x",
        of("transpose", "type run"),
    ),
    Fault(
        "type: inner sizes of matmul unchecked",
        "ops/products.py",
        "if x.shape[-1] != y.shape[-2]:",
        "if x.shape[-1] != y.shape[-2] and x.rank > 9:",
        of("matmul", "bad"),
    ),
    Fault(
        "type: branches may differ",
        "ops/control.py",
        'need(then.out_types == orelse.out_types, "E0171"',
        'need(len(then.out_types) == len(orelse.out_types), "E0171"',
        of("if", "bad"),
    ),
    Fault(
        "ref: remainder toward zero",
        "ops/elementwise.py",
        "ref=widened(np.remainder)",
        "ref=widened(np.fmod)",
        of("remainder", "expand run"),
    ),
    Fault("ref: sub is reversed", "ops/elementwise.py", "ref=np.subtract", "ref=lambda x, y: y - x", of("sub", "run")),
    Fault(
        "hlo: sub is lowered as add", "ops/elementwise.py", 'hlo="subtract"', 'hlo="add"', of("sub", "run"), quick=True
    ),
    Fault(
        "hlo: less is lowered as less or equal",
        "ops/compare.py",
        'hlo=_direction("LT")',
        'hlo=_direction("LE")',
        of("less", "run"),
    ),
    Fault(
        "hlo: sums of 16-bit floats stay in 16 bits",
        "lower/builder.py",
        "and kind in _SUMS",
        "and kind in ()",
        (f"{LOWER}narrow_sums_are_kept_in_float32",),
    ),
    Fault(
        "hlo: conversion to bool cuts",
        "lower/builder.py",
        "comparison_direction NE>",
        "comparison_direction GT>",
        (f"{LOWER}conversions_are_numpys", f"{LOWER}nan_is_true"),
    ),
    Fault(
        "hlo: dilation of a kernel's gradient",
        "ops/convolution.py",
        "window_strides=dilation, padding=tuple(pads), rhs_dilation=stride",
        "window_strides=stride, padding=tuple(pads), rhs_dilation=dilation",
        of("conv_weight_grad", "run"),
    ),
    Fault(
        "hlo: take puts the slices first",
        "ops/index.py",
        "offset = [*range(axis), *range(axis + of_i.rank, b.out[0].rank)]",
        "offset = [*range(b.out[0].rank - of_i.rank)]",
        of("take", "run"),
    ),
    Fault(
        "expansion: layer norm takes the bias away",
        "ops/norm.py",
        "_as_rows(scale, w) + _as_rows(bias, w)",
        "_as_rows(scale, w) - _as_rows(bias, w)",
        of("layer_norm", "expand"),
    ),
    Fault(
        "expansion: causal attention sees one place more",
        "ops/attentions.py",
        "greater_equal(rows, columns)",
        "greater_equal(rows + 1, columns)",
        of("attention", "expand run"),
    ),
    Fault(
        "expansion: gru mixes z and 1 - z",
        "ops/recurrent.py",
        "return cast((1.0 - z) * tanh(xn + r * hn) + z * wide(h)",
        "return cast(z * tanh(xn + r * hn) + (1.0 - z) * wide(h)",
        of("gru_cell", "expand run"),
    ),
    Fault(
        "expansion: sgd's nesterov without the gradient",
        "ops/optim.py",
        "g + speed * momentum if nesterov",
        "speed * momentum if nesterov",
        ("tests/ops/test_optim.py", *of("sgd_update", "expand run")),
    ),
    Fault(
        "expansion: adam's correction of v forgotten",
        "ops/optim.py",
        "1 / sqrt(_correction(count, beta2))",
        "1 / sqrt(_correction(count, beta1))",
        ("tests/ops/test_optim.py", *of("adam_update", "expand run")),
    ),
    Fault(
        "expansion: adam decays in the wrong place",
        "ops/optim.py",
        "if weight_decay and decoupled:",
        "if weight_decay and not decoupled:",
        ("tests/ops/test_optim.py",),
    ),
    Fault(
        "saved: the loss keeps shift and total in the wrong order",
        "ops/loss.py",
        "return (loss,), (shift, total)",
        "return (loss,), (total, shift)",
        of("cross_entropy", "grad"),
    ),
    Fault(
        "saved: the lstm keeps the old state",
        "ops/recurrent.py",
        "return (h, c), (gates,)",
        "return (c, h), (gates,)",
        of("lstm_cell", "run"),
    ),
    Fault(
        "random: one key for all draws",
        "ops/random.py",
        "full(value=high, shape=shape, dtype=uint32), low)",
        "full(value=high, shape=shape, dtype=uint32), 0 * low)",
        of("random_split", "expand"),
    ),
]

# ------------------------------------------------------------------------------------------------- control flow
_LOOPS = ("tests/api/test_loop_gradients.py::test_recurrence_in_closed_form",)
_CONTROL = [
    Fault(
        "if: residuals of the branches in each other's places",
        "ops/control.py",
        "saved[i] if i in saved else zeros(t)",
        "saved[len(slots) - 1 - i] if len(slots) - 1 - i in saved else zeros(t)",
        (*GRAD, *RANDOM),
    ),
    Fault(
        "if: a shared place is given twice",
        "ops/control.py",
        "                free.remove(spot)\n",
        "                pass\n",
        (*GRAD, *RANDOM),
    ),
    Fault(
        "while: residuals go to the next slot",
        "ops/control.py",
        "slot = _remainder(count, self.trips)",
        "slot = _remainder(add(count, 1), self.trips)",
        GRAD,
        quick=True,
    ),
    Fault(
        "while: a segment begins one trip early",
        "ops/control.py",
        "add(_remainder(sub(end, 1), self.trips), 1)",
        "add(_remainder(end, self.trips), 1)",
        (
            f"{GRAD[0]}::test_a_loop_runs_the_body_again_only_beyond_its_capacity",
            f"{GRAD[0]}::test_loops_of_any_length[4-3]",
        ),
    ),
    Fault(
        "while: earlier segments are not filled again",
        "ops/control.py",
        "filled = again.loop(refill, again.init, rest[z:])",
        "filled = [*again.init, refill, *rest[z:]]",
        GRAD,
    ),
    Fault(
        "while: refilled to the end of all",
        "ops/control.py",
        "return [start, start, *state, *stacks]",
        "return [start, end, *state, *stacks]",
        GRAD,
    ),
    Fault(
        "while: gradients of constants are not summed",
        "ops/control.py",
        "sums = [add(x, g) for x, g in zip(before[n_live:], grads[:n_const], strict=True)]",
        "sums = grads[:n_const]",
        GRAD,
    ),
    Fault(
        "while: the carry after a trip is the one before it",
        "ops/control.py",
        "peek(args[a + i], add(slot, 1))",
        "peek(args[a + i], slot)",
        _LOOPS,
    ),
    Fault(
        "while: the end of a segment that is filled again is not kept",
        "ops/control.py",
        "row = sub(self.trips + 1, minimum(refill, 1))",
        "row = number(self.trips + 1)",
        _LOOPS,
    ),
    Fault(
        "while: a checkpointed loop asks about the carry before the trip",
        "ops/_checkpointed.py",
        "build.inline(cond, [*args[:n], *new])",
        "build.inline(cond, [*args[:n], *args[n + 2 :]])",
        ("tests/api/test_checkpointed_loops.py::test_while_of_any_length",),
    ),
    Fault(
        "scan: a checkpointed rest begins with the blocks' rows",
        "ops/_checkpointed.py",
        "_rows(x, full * every, length)",
        "_rows(x, 0, length - full * every)",
        ("tests/api/test_checkpointed_loops.py::test_scan_of_any_length",),
    ),
    Fault(
        "scan: backwards in the same direction",
        "ops/loops.py",
        '"reverse": not reverse}',
        '"reverse": reverse}',
        (*of("scan"), *RANDOM),
    ),
    Fault(
        "scan: gradients of constants are not summed",
        "ops/loops.py",
        "new = [add(a, g) for a, g in zip(sums, grads[:n_sums], strict=True)]",
        "new = list(grads[:n_sums])",
        of("scan"),
    ),
    Fault(
        "scan: expanded from the wrong end",
        "ops/loops.py",
        "at = sub(length - 1, count) if reverse else count",
        "at = sub(length, count) if reverse else count",
        of("scan", "expand run"),
    ),
    Fault(
        "remat: keeps its residuals",
        "ops/calls.py",
        "held = barrier(*inputs, *seeds)",
        "held = [*inputs, *seeds]",
        ("tests/api/test_gradients.py::test_checkpoint_saves_only_inputs",),
    ),
    Fault(
        "custom_vjp: the gradient by hand is forgotten",
        "ops/calls.py",
        "return [g if f else None for g, f in zip(found, flags, strict=True)]\n\n    return tuple(results[:n_outputs])",
        "return [None for g, f in zip(found, flags, strict=True)]\n\n    return tuple(results[:n_outputs])",
        GRAD,
    ),
    Fault(
        "call: the backward function of other inputs",
        "transforms/grad.py",
        'suffix = "".join("1" if w else "0" for w in wrt)',
        'suffix = ""',
        GRAD,
    ),
]

FAULTS: list[Fault] = [*_GRADIENTS, *_RULES, *_CONTROL, *COMPILER, *KERNELS, *CONVOLUTIONS, *PYTHON]
