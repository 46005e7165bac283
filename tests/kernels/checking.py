"""Runs kernels as they are and says what is wrong: `check_body(body, arrays, target, choose)`; `parts(fn, arrays)`.

A kernel's results are compared with the IR's own meaning, computed in the types of the body and once more in float64:
a number must be near one of the two, NaN and infinity must be where one of them has it. Results must be the same bits
for one thread and two, and where an output takes the memory of an input; inputs and the bytes around all arrays must be
as they were; a page on one side of each array must not be touched at all.
"""

import numpy as np
from tests.kernels.pages import Fenced

from treadle.base.dtypes import DType, float64
from treadle.ir import build, interp
from treadle.ir.node import Module
from treadle.kernels import engine, jit
from treadle.kernels.target import host
from treadle.kernels.templates.conv import takes_rows
from treadle.ops.casting import cast
from treadle.ops.computes import compute
from treadle.ops.groups import fused
from treadle.transforms.fuse import Fuse, smaller
from treadle.transforms.layout import Layout

TARGETS = {
    "host": host(),
    "no pairs": host().without("avx512bf16"),
    "avx2": host().without("avx512f"),
    "plain": host().without("avx512f", "avx2", "fma", "avx", "f16c", "sse4.1"),
}
TOLERANCE = {"f64": 1e-10, "f32": 3e-5, "bf16": 3e-2, "f16": 6e-3}
LEAST = 0.1  # results are compared as if their largest were at least so large


def widened(body):
    """The body with every float a float64; None where that cannot be said (formulas name their types)."""
    if any(n.op is compute for n in body.nodes):
        return None

    def run(*values):
        known = dict(zip(body.params, values, strict=True))
        for n in body.nodes:
            attrs = {k: float64 if isinstance(v, DType) and v.is_float else v for k, v in n.attrs.items()}
            made = n.op(*[known[v] for v in n.inputs], **attrs)
            for old, new in zip(n.outputs, made if isinstance(made, tuple) else (made,), strict=True):
                known[old] = cast(new, dtype=float64) if new.dtype.is_float and new.dtype is not float64 else new
        return [known[o] for o in body.outputs]

    types = [t.with_dtype(float64) if t.dtype.is_float else t for t in body.in_types]
    return build.trace(run, types)


def wanted(body, arrays):
    """For each result, what it may be near."""
    with np.errstate(all="ignore"):
        found = [interp.run(body, *arrays)]
        wide = widened(body)
        if wide is not None:
            found.append(interp.run(wide, *[a.astype(t.dtype.np) for a, t in zip(arrays, wide.in_types, strict=True)]))
    return list(zip(*found, strict=True))


def tolerances(body):
    """For each result, how far it may be off for its largest number: what its own type and those before it allow."""
    found = {}
    for node in body.nodes:
        before = max([found.get(v, 0) for v in node.inputs], default=0)
        less = 10 if node.attrs.get("precision", "highest") != "highest" else 1
        found.update({o: max(before, TOLERANCE[o.dtype.short] * less if o.dtype.is_float else 0) for o in node.outputs})
    return [found.get(o, 0) if o.dtype.is_float else 0 for o in body.outputs]


def wrong(got, wants, tolerance, least=LEAST):
    """The places where a result is none of what it may be, and the largest error of all in units of the tolerance."""
    worst = np.full(got.shape, np.inf)
    for want in wants:
        g, w = got.astype(np.float64), want.astype(np.float64)
        with np.errstate(all="ignore"):
            size = np.abs(w[np.isfinite(w)]).max(initial=least)
            error = np.abs(g - w) / (tolerance * size if tolerance else 1)
        error = np.where((g == w) | (np.isnan(g) & np.isnan(w)), 0, np.where(np.isnan(error), np.inf, error))
        worst = np.minimum(worst, error)
    return np.argwhere(worst > (1 if tolerance else 0)), worst.max(initial=0)


def run(kernel, arrays, target, threads=1, first=False, shared=(), texts=()):
    """The outputs of one call. first: where the arrays lie in their pages; shared: (output, input) in one place; texts:
    of kernels that do one after the other what this one does."""
    codes = [jit.load(text, target) for text in texts or (kernel.text,)]
    ins = [Fenced(a, first) for a in arrays]
    outs = [Fenced(np.full(t.bytes, 255, np.uint8).view(t.dtype.np).reshape(t.shape), first) for t in kernel.outputs]
    for out, given in shared:
        outs[out] = ins[given]
    work = [Fenced(np.full(kernel.workspace, 255, np.uint8), first)] if kernel.workspace else []
    for code in codes:
        code.run([f.array for f in (*ins, *outs, *work)], threads)
    if not all(f.intact() for f in (*ins, *outs, *work)):
        raise AssertionError("bytes beside an array were written")
    taken = {given for _, given in shared}
    for i, (a, f) in enumerate(zip(arrays, ins, strict=True)):
        if i not in taken and f.array.tobytes() != np.ascontiguousarray(a).tobytes():
            raise AssertionError(f"input {i} was written")
    return [f.array for f in outs]


def check_plan(plan, body, arrays, target, least=LEAST, divided=False):
    """Raises AssertionError, with words, for a wrong kernel. divided: also as two, one of which packs an operand."""
    kernel = plan.build()
    if (kernel.inputs, kernel.outputs) != (body.in_types, body.out_types):
        raise AssertionError("the kernel's types are not those of the body")
    results = run(kernel, arrays, target)
    check_results(results, body, arrays, least)
    for how in ({"threads": 2}, {"threads": 2, "first": True}, {"shared": kernel.aliases}):
        if how.get("shared") == ():
            continue
        for a, b in zip(results, run(kernel, arrays, target, **how), strict=True):
            if a.tobytes() != b.tobytes():
                raise AssertionError(f"other bits with {how}")
    whole = plan.apart() if plan.apart is not None else kernel
    if divided and whole.packs >= 0:
        texts = [part.text for part in whole.divided()]
        check_results(run(whole, arrays, target, 2, texts=texts), body, arrays, least)


def check_results(results, body, arrays, least=LEAST):
    """Raises AssertionError where they are not what the body means."""
    limits = tolerances(body)
    for which, (got, wants, t) in enumerate(zip(results, wanted(body, arrays), body.out_types, strict=True)):
        places, worst = wrong(got, wants, limits[which], least)
        if len(places):
            at = tuple(int(i) for i in places[0])
            values = ", ".join(str(w[at]) for w in wants)
            raise AssertionError(
                f"result {which} {t} is wrong at {len(places)} places of {got.size}, by up to {worst:.3g} times what "
                f"is allowed; at {at}, {got[at]} for {values}"
            )


def check_body(body, arrays, target=None, choose=lambda plans: plans[0], least=LEAST, divided=False):
    """Whether a template takes the body. Raises AssertionError, which names plan and CPU, where its kernel is wrong."""
    plans = engine.plans(body, target or host())
    if not plans:
        return False
    plan = choose(plans)
    try:
        check_plan(plan, body, arrays, target or host(), least, divided)
    except AssertionError as error:
        raise AssertionError(f"{plan.name}: {error}\n{body}") from None
    return True


def along_rows(node):
    """What the driver tells transforms/layout."""
    return takes_rows(node, host())


def parts(fn, arrays, turned=True):
    """The bodies that the driver would ask the engine about, with what they are given; those that no template takes are
    divided as the driver divides them. turned: with images turned to channels last."""
    module = Module.of(fn)
    made = Fuse(3)(Layout(small=True)(module, along_rows) if turned else module).main
    yield from _parts(made, arrays)


def _parts(fn, arrays):
    env = dict(zip(fn.params, arrays, strict=True))
    for node in fn.nodes:
        given = [env[v] for v in node.inputs]
        if node.op is fused:
            body = node.attrs["body"]
            divided = body if engine.plans(body) else smaller(body)
            if divided is body:
                yield body, given
            else:
                yield from _parts(divided, given)
        with np.errstate(all="ignore"):
            env.update(zip(node.outputs, interp.run_node(node, given, {}), strict=True))
