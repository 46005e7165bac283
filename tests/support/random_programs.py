"""Random well-typed IR programs: `random_fn(seed)`, `random_module(seed)` (with functions that are called).

Numbers stay tame: functions that grow are applied to tanh of their argument, divisors are 1 + y*y. `ops` names the
makers to draw from (default: all); `SMOOTH` are those whose derivative can be compared with finite differences.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle import ops
from treadle.base import dtypes
from treadle.base.dtypes import DType
from treadle.ir import build
from treadle.ir.build import Builder
from treadle.ir.node import Fn, Module, Node, Value
from treadle.ir.op import get
from treadle.ir.rewrite import map_regions, rebuild, with_inputs
from treadle.ir.types import TensorType

assert ops.OPS  # importing the package has filled the table
MAKERS: dict[str, Callable[["Program"], Value]] = {}


def maker(function: Callable[["Program"], Value]) -> Callable[["Program"], Value]:
    MAKERS[function.__name__] = function
    return function


class Program:
    """The state of one random program: the generator, the values so far, the makers allowed."""

    def __init__(
        self, rng: np.random.Generator, dtype: DType, makers: Sequence[str], depth: int, seeds: list[Value]
    ) -> None:
        self.rng, self.dtype, self.makers, self.depth = rng, dtype, makers, depth
        self.values = list(seeds)

    def grow(self, size: int) -> None:
        for _ in range(size):
            name = self.makers[self.rng.integers(len(self.makers))]
            value = MAKERS[name](self)
            if value.type.size <= 64:
                self.values.append(value)

    def pick(self, rank: int = 0) -> Value:
        """A float value, of at least so many axes, with a preference for late ones."""
        found = [v for v in self.values if v.dtype is self.dtype]
        weights = np.arange(1, len(found) + 1) / (len(found) * (len(found) + 1) / 2)
        value = found[self.rng.choice(len(found), p=weights)]
        while value.ndim < rank:
            value = get("reshape")(value, shape=(1, *value.shape))
        return value

    def partner(self, x: Value) -> Value:
        """A value of the type of x, x itself when there is no other."""
        found = [v for v in self.values if v.type == x.type]
        return found[self.rng.integers(len(found))] if found else x

    def number(self, x: Value, choices: Sequence[float] = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 0.3)) -> Value:
        scalar = get("full")(value=float(self.rng.choice(choices)), shape=(), dtype=x.dtype)
        return get("broadcast_to")(scalar, shape=x.shape)

    def flag(self) -> Value:
        """One bool that depends on the data."""
        x = self.pick()
        total = get("reduce_sum")(x, axes=tuple(range(x.ndim)))
        return get("less")(total, self.number(total))

    def region(self, types: Sequence[TensorType], results: Sequence[TensorType], name: str) -> Fn:
        """A random body with parameters and results of these types."""

        def body(*args: Value) -> list[Value]:
            floats = [a for a in args if a.dtype is self.dtype]
            inner = Program(self.rng, self.dtype, self.makers, self.depth - 1, floats)
            inner.grow(int(self.rng.integers(1, 4)))
            return [inner.shaped(t) for t in results]

        return build.trace(body, types, name, build.current().fns)

    def shaped(self, type: TensorType) -> Value:
        """A value of the program brought to a type: tanh of a sum, broadcast."""
        same = [v for v in self.values if v.type == type]
        if same:
            return get("tanh")(same[-1])
        x = self.values[-1]
        total = get("tanh")(get("reduce_sum")(x, axes=tuple(range(x.ndim))))
        return get("broadcast_to")(total, shape=type.shape)


@maker
def unary(p: Program) -> Value:
    name = p.rng.choice(["neg", "tanh", "exp", "square", "abs", "sqrt", "sigmoid", "sin"])
    x = p.pick()
    if name in ("exp", "square"):
        x = get("tanh")(x)
    if name == "sqrt":
        x = get("add")(get("square")(get("tanh")(x)), 1.0)
    return get("sin")(get("square")(get("tanh")(x))) if name == "abs" else get(name)(x)


@maker
def binary(p: Program) -> Value:
    x = p.pick()
    return get(p.rng.choice(["add", "sub", "mul"]))(x, p.partner(x))


@maker
def division(p: Program) -> Value:
    x = p.pick()
    y = get("tanh")(p.partner(x))
    return get("div")(x, get("add")(get("mul")(y, y), 1.0))


@maker
def scalar(p: Program) -> Value:
    x = p.pick()
    name = p.rng.choice(["add", "sub", "mul", "div"])
    number = p.number(x, (1.0, 2.0, -0.5, 3.0)) if name == "div" else p.number(x)
    return get(name)(number, x) if name in ("add", "mul") and p.rng.random() < 0.5 else get(name)(x, number)


@maker
def idle(p: Program) -> Value:
    """Something that a pass removes: double signs, shapes there and back, an op done twice."""
    x = p.pick(2)
    last = tuple(range(x.ndim - 2)) + (x.ndim - 1, x.ndim - 2)
    swap, flat = get("transpose"), get("reshape")
    return [
        lambda: get("neg")(get("neg")(x)),
        lambda: swap(swap(x, perm=last), perm=last),
        lambda: flat(flat(x, shape=(x.type.size,)), shape=x.shape),
        lambda: get("cast")(get("cast")(x, dtype=dtypes.float64), dtype=x.dtype),
        lambda: get("add")(get("tanh")(x), get("tanh")(x)),
        lambda: get("sub")(x, get("neg")(get("tanh")(x))),
        lambda: get("broadcast_to")(x, shape=x.shape),
    ][p.rng.integers(7)]()


@maker
def matmul(p: Program) -> Value:
    x = p.pick(2)
    y = get("transpose")(p.partner(x), perm=tuple(range(x.ndim - 2)) + (x.ndim - 1, x.ndim - 2))
    return get("tanh")(get("matmul")(x, y))


@maker
def reduction(p: Program) -> Value:
    x = p.pick(1)
    axes = tuple(i for i in range(x.ndim) if p.rng.random() < 0.5)
    return get("reduce_sum")(x, axes=axes)


@maker
def maxima(p: Program) -> Value:
    x = p.pick(1)
    name = p.rng.choice(["reduce_max", "maximum", "minimum"])
    return get(name)(x, axes=(0,)) if name == "reduce_max" and x.shape[0] else get("maximum")(x, p.partner(x))


@maker
def shape(p: Program) -> Value:
    x = p.pick(1)
    n = x.type.size
    divisors = [d for d in range(1, n + 1) if n % d == 0]
    rows = int(p.rng.choice(divisors)) if n else 0
    return [
        lambda: get("reshape")(x, shape=(rows, n // rows if rows else 3)),
        lambda: get("transpose")(x, perm=tuple(int(i) for i in p.rng.permutation(x.ndim))),
        lambda: get("broadcast_to")(x, shape=(2, *x.shape)),
        lambda: get("concatenate")(x, p.partner(x), axis=0),
        lambda: get("reverse")(x, axes=(0,)),
    ][p.rng.integers(5)]()


@maker
def choice(p: Program) -> Value:
    x = p.pick()
    y = p.partner(x)
    return get("select")(get("less")(x, get("neg")(y)), x, y)


@maker
def casts(p: Program) -> Value:
    through = p.rng.choice(["f16", "f32", "f64", "bf16", "bool", "i32"])
    x = get("tanh")(p.pick())
    return get("cast")(get("cast")(x, dtype=dtypes.of(str(through))), dtype=p.dtype)


@maker
def constants(p: Program) -> Value:
    made = get("iota")(shape=(3,), axis=0, dtype=p.dtype)
    return get("mul")(get("neg")(made), p.number(made))


@maker
def branch(p: Program) -> Value:
    if p.depth == 0:
        return binary(p)
    x = p.pick()
    args = [x, p.partner(x)]
    types = [a.type for a in args]
    one, two = (p.region(types, [x.type], name) for name in ("then", "orelse"))
    return get("if")(p.flag(), *args, then=one, orelse=two)[0]


@maker
def steady_branch(p: Program) -> Value:
    """An `if` on data whose condition no small step can turn, so that the derivative exists."""
    if p.depth == 0:
        return binary(p)
    x = p.pick()
    args = [x, p.partner(x), p.pick()]
    total = get("reduce_sum")(x, axes=tuple(range(x.ndim)))
    flag = get("less")(get("tanh")(total), float(p.rng.choice([-2.0, 2.0])))
    types = [a.type for a in args]
    one, two = (p.region(types, [x.type, args[2].type], name) for name in ("then", "orelse"))
    return get("if")(flag, *args, then=one, orelse=two)[p.rng.integers(2)]


@maker
def loop(p: Program) -> Value:
    """0 to 6 trips with a constant; a gradient keeps as many as it likes, or so few that it runs parts again."""
    if p.depth == 0:
        return unary(p)
    x, held = p.pick(), p.pick()
    start = get("full")(value=0, shape=(), dtype=dtypes.int32)
    trips = int(p.rng.integers(0, 7))
    types = [held.type, start.type, x.type]
    cond = build.trace(lambda _, i, __: get("less")(i, trips), types, "cond")
    step = p.region([held.type, x.type], [x.type], "step")
    body = build.trace(lambda w, i, y: (get("add")(i, 1), *build.inline(step, [w, y])), types, "body")
    capacity = int(p.rng.choice([0, 1, 2, 4]))
    return get("while")(held, start, x, cond=cond, body=body, n_consts=1, capacity=capacity)[1]


@maker
def scan(p: Program) -> Value:
    if p.depth == 0:
        return reduction(p)
    held, carry, xs = p.pick(), p.pick(), p.pick(1)
    row = TensorType(xs.dtype, xs.shape[1:])
    body = p.region([held.type, carry.type, row], [carry.type, row], "body")
    backwards = bool(p.rng.random() < 0.5)
    shape = {"n_consts": 1, "n_carry": 1, "length": xs.shape[0], "reverse": backwards}
    return get("scan")(held, carry, xs, body=body, **shape)[p.rng.integers(2)]


@maker
def remat(p: Program) -> Value:
    if p.depth == 0:
        return unary(p)
    args = [p.pick(), p.pick()]
    body = p.region([a.type for a in args], [args[0].type, args[1].type], "again")
    return get("remat")(*args, body=body)[p.rng.integers(2)]


@maker
def custom(p: Program) -> Value:
    """tanh with a derivative given by hand, from a residual."""
    x = p.pick()
    tanh, mul = get("tanh"), get("mul")
    body = build.trace(lambda v: (tanh(v), mul(tanh(v), tanh(v))), [x.type], "by_hand")
    backward = build.trace(lambda v, y, square, d: mul(d, get("sub")(1.0, square)), [x.type] * 4, "by_hand_grad")
    return get("custom_vjp")(x, body=body, backward=backward, n_outputs=1)[0]


@maker
def call(p: Program) -> Value:
    fns = build.current().fns
    if p.depth == 0 or "main" not in fns:
        return scalar(p)
    x = p.pick()
    known = [f for f in fns.values() if f.in_types == (x.type,) and f.name != "main"]
    if known and p.rng.random() < 0.7:
        fn = known[p.rng.integers(len(known))]
    else:
        fn = p.region([x.type], [x.type], f"f{len(fns)}")
        fn = Fn(f"f{len(fns)}", fn.params, fn.nodes, fn.outputs)  # the body may have added functions
        fns[fn.name] = fn
    return get("call")(x, callee=fn.name, results=fn.out_types)[0]


@maker
def composite(p: Program) -> Value:
    """An op that is declared by its expansion."""
    x = p.pick(1)
    return get("logsumexp")(x, axes=(x.ndim - 1,)) if x.type.size else binary(p)


SMOOTH = (
    "unary", "binary", "division", "scalar", "idle", "matmul", "reduction", "shape", "constants", "loop", "scan",
    "call", "steady_branch", "remat", "custom",
)  # fmt: skip
_SHAPES = ((), (3,), (1,), (2, 3), (3, 2), (1, 3), (2, 2, 2), (0, 2))


def random_module(seed: int, ops: Sequence[str] = (), size: int = 12, dtype: DType = dtypes.float32) -> Module:
    """A module with main and the functions it calls; 1 to 3 parameters and outputs."""
    rng = np.random.default_rng(seed)
    makers = tuple(ops) or tuple(MAKERS)
    placeholder = Fn("main", (), (), ())
    fns = {"main": placeholder}
    with Builder("main", fns) as builder:
        params = [
            builder.param(TensorType(dtype, _SHAPES[rng.integers(len(_SHAPES))])) for _ in range(rng.integers(1, 4))
        ]
        program = Program(rng, dtype, makers, 2, params)
        program.grow(size)
        count = int(rng.integers(1, 4))
        late = program.values[-6:]
        outputs = [late[rng.integers(len(late))] for _ in range(count)]
        fns["main"] = builder.finish(outputs)
    return Module(fns)


def random_fn(seed: int, ops: Sequence[str] = (), size: int = 12, dtype: DType = dtypes.float32) -> Fn:
    """A function without calls."""
    makers = [name for name in (tuple(ops) or tuple(MAKERS)) if name != "call"]
    return random_module(seed, makers, size, dtype).main


def random_arguments(fn: Fn, seed: int) -> list[Any]:
    """Arguments of the function's types, normally distributed."""
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.normal(size=t.shape)).astype(t.dtype.np) for t in fn.in_types]


def together(modules: Sequence[Module]) -> Module:
    """One module whose main calls each of them in turn: their inputs, and their outputs, one after the other."""
    fns = {f"p{i}_{name}": _prefixed(fn, f"p{i}_") for i, m in enumerate(modules) for name, fn in m.fns.items()}
    types = [t for m in modules for t in m.main.in_types]

    def main(*args: Value) -> list[Value]:
        rest, outputs = list(args), list[Value]()
        for i, module in enumerate(modules):
            n = len(module.main.params)
            outputs += get("call")(*rest[:n], callee=f"p{i}_main", results=module.main.out_types)
            rest = rest[n:]
        return outputs

    return Module.of(build.trace(main, types, "main"), fns)


def _prefixed(fn: Fn, prefix: str) -> Fn:
    """`fn` under a longer name, calling functions with longer names."""

    def inner(region: Fn) -> Fn:
        def visit(node: Node, inputs: tuple[Value, ...]) -> Node:
            attrs = dict(map_regions(node, inner))
            if "callee" in attrs:
                attrs["callee"] = prefix + attrs["callee"]
            return with_inputs(node, inputs, attrs)

        return rebuild(region, visit)

    changed = inner(fn)
    return Fn(prefix + fn.name, changed.params, changed.nodes, changed.outputs)
