"""`jit(function, dynamic={"x": {0: "batch", 1: "length"}})`: one program for all sizes of a bucket, with the numbers of
the real sizes.

Arguments are padded with zeros up to the bucket and results are cut back, on the host. The program is made from traces
of the function at several sizes (transforms/padded.py). Before a new size runs, the function is traced at that size,
too: it must give the very program that is there, and tells the numbers that depend on the size. So a program is never
used where the function would do something else, at the price of one trace (no compilation) for each new size.

Sizes 0, 1 and 2 are not padded: they are buckets of their own, since an axis of size 1 broadcasts.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle.api.programs import Jitted, Program, trace_for
from treadle.base.errors import UserError
from treadle.frontend import keys, tree
from treadle.frontend import tape as taping
from treadle.frontend import trace as tracing
from treadle.frontend.keys import Key
from treadle.frontend.tensor import Tensor
from treadle.frontend.trace import Traced, is_dynamic, is_tensor, leaf_type
from treadle.ir.node import Fn, same_fn
from treadle.runtime import pjrt
from treadle.transforms.padded import Axes, Axis, Dim, Padded, narrowed, outer_shape, pad_fn, widened

Sizes = dict[str, int]
Buckets = Mapping[str, Sequence[int] | Callable[[int], int]]
_LEAST = 8  # the smallest default bucket
_MOST_SEEN = 1024  # sizes whose numbers are kept for a program


class Dynamic(Jitted):
    """A function compiled once for each bucket of its dynamic sizes."""

    def __init__(
        self, function: Callable[..., Any], name: str, dynamic: Mapping[Any, Any], buckets: Buckets | None
    ) -> None:
        super().__init__(function, name)
        self.dynamic, self.buckets = _read(dynamic), dict(buckets or {})
        names = {n for axes in self.dynamic.values() for n in axes.values()}
        for name, rule in self.buckets.items():
            if not callable(rule) and not (isinstance(rule, list | tuple) and all(isinstance(b, int) for b in rule)):
                why = f"the buckets of {name!r} are {rule!r}"
                raise UserError("E0263", why, fix="give a list of sizes, or a function of the size")
        unknown = sorted(set(self.buckets) - names)
        if unknown:
            why = f"buckets are given for {', '.join(unknown)}; the dimensions are {', '.join(sorted(names))}"
            raise UserError("E0263", why, fix="use the names of dynamic=")
        self._names = _argument_names(function)
        self._kept: dict[Key, list[_Bucket]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if tracing.current() is not None or taping.current() is not None:
            return super().__call__(*args, **kwargs)
        call = _Call(self, args, kwargs)
        if not call.bucket:
            return super().__call__(*args, **kwargs)
        found = self._ready(call)
        if found is None:
            with self._compiling:
                found = self._ready(call) or self._prepare(call)
        return found[0].run(call, found[1])

    def _of(self, method: Callable[..., Any]) -> Jitted:
        """A bound method; the position 0 in `dynamic` is its first argument after self."""
        return Dynamic(method, self.name, self.dynamic, self.buckets)

    def _ready(self, call: _Call) -> tuple[_Bucket, _AtSize] | None:
        for bucket in self._kept.get(call.key, ()):
            at = bucket.seen.get(call.size_key)
            if at is not None and bucket.program.still_valid():
                bucket.program.use()
                return bucket, at
        return None

    def _prepare(self, call: _Call) -> tuple[_Bucket, _AtSize]:
        """A bucket whose program is right at the sizes of this call: one of those there, or a new one."""
        kept = [b for b in self._kept.get(call.key, ()) if b.program.still_valid()]
        for bucket in kept:
            at = bucket.admit(call)
            if at is not None:
                return bucket, at
        made: list[_Bucket] = []

        def make(name: str) -> Program:
            made.append(_Bucket(name, self.function, call))
            return made[0].program

        self._compile(call.key, call.template, call.template_kwargs, make)
        self._kept[call.key] = [*[b for b in self._kept.get(call.key, ()) if b in kept], made[0]]
        return made[0], next(iter(made[0].seen.values()))

    def _drop(self, old: Program) -> None:
        super()._drop(old)
        self._kept = {k: left for k, b in self._kept.items() if (left := [x for x in b if x.program is not old])}

    def clear(self) -> None:
        """Forget all compiled programs."""
        super().clear()
        self._kept.clear()

    def bucket_of(self, name: str, size: int) -> int:
        """The size that the dimension is padded to. Raises E0263 when no bucket is large enough."""
        if size <= 2:
            return size
        rule = self.buckets.get(name)
        if rule is None:
            return max(_LEAST, 1 << (size - 1).bit_length())
        found = rule(size) if callable(rule) else min((b for b in rule if b >= size), default=0)
        if not isinstance(found, int) or found < size:
            has = f"its function gives {found!r}" if callable(rule) else f"its buckets are {list(rule)}"
            raise UserError("E0263", f"{name} is {size}; {has}", fix=f"give a bucket of {size} or more")
        return found


class _Call:
    """The arguments of one call: leaves, their padded axes, the real sizes and the bucket (of those that are padded).

    key: that of the call at the sizes of the bucket.
    """

    def __init__(self, owner: Dynamic, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args, self.kwargs = args, kwargs
        leaves, self.shape = tree.flatten((args, kwargs))
        self.leaves = leaves
        named = _named_axes(owner, leaves, self.shape, args, kwargs)
        sizes = _sizes_of(leaves, named, self.shape.paths())
        full = {name: owner.bucket_of(name, n) for name, n in sizes.items()}
        self.bucket: Sizes = {name: n for name, n in full.items() if n > 2}
        self.sizes: Sizes = {name: sizes[name] for name in self.bucket}
        self.size_key = tuple(sorted(self.sizes.items()))
        self.axes: list[Axes] = [
            _axes(leaf, each, self.bucket) for leaf, each in zip(leaves, named, strict=True) if is_dynamic(leaf)
        ]
        if self.bucket:
            self.template, self.template_kwargs = self.at(self.bucket)
            self.key = keys.key_of(*tree.flatten((self.template, self.template_kwargs)))

    def at(self, sizes: Sizes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with zeros of these sizes in the place of what is padded; for tracing only."""
        twins: dict[int, Any] = {}
        axes = iter(self.axes)
        new = []
        for leaf in self.leaves:
            if is_dynamic(leaf) and any(each := next(axes)):
                if id(leaf) not in twins:
                    twins[id(leaf)] = _zeros(leaf, outer_shape(leaf.shape, each, sizes))
                new.append(twins[id(leaf)])
            else:
                new.append(leaf)
        found: tuple[tuple[Any, ...], dict[str, Any]] = self.shape.unflatten(new)
        return found

    def padded(self) -> list[Any]:
        """The dynamic leaves with zeros up to the bucket."""
        dynamic = [leaf for leaf in self.leaves if is_dynamic(leaf)]
        return [_grown(leaf, axes, self) if any(axes) else leaf for leaf, axes in zip(dynamic, self.axes, strict=True)]


@dataclass(frozen=True)
class _AtSize:
    """What a program needs at given sizes: the inputs that the sizes decide, and how to build what is returned."""

    inputs: list[Tensor]
    result: Callable[[Sequence[Any]], Any]


class _Bucket:
    """One program, and the sizes at which it is known to be right."""

    def __init__(self, name: str, function: Callable[..., Any], call: _Call) -> None:
        self.function, self.bucket = function, call.bucket
        real = self._trace(call, call.sizes)  # first, for the errors that a plain call has
        # Beside the bucket, one trace with each dimension one smaller: by it one sees which sizes hang on it.
        others = [{**call.bucket, n: size - 1} for n, size in call.bucket.items()]
        self.points = [call.bucket, *others]
        self.traces = [self._trace_beyond(call, sizes) for sizes in self.points]
        self.padded = self._read(call, real)
        first = self.traces[0]
        n = first.num_args
        inputs = len(call.bucket) + len(self.padded.extras)
        main = Fn(first.fn.name, self.padded.fn.params, self.padded.fn.nodes, self.padded.fn.outputs)
        seen = [*self.traces, real]
        padded = dataclasses.replace(
            first,
            fn=main,
            fns={},
            num_args=n + inputs,
            result=list,
            touched=tuple({id(obj): obj for t in seen for obj in t.touched}.values()),
            numbers=tuple({id(each[0]): each for t in seen for each in t.numbers}.values()),
        )
        self.relied = {id(obj) for obj in padded.touched} | {id(each[0]) for each in padded.numbers}
        self._refuse_padded_state(padded, name)
        self.program = Program(name, function, call.template, call.template_kwargs, padded)
        # What the traces hold beside their functions is not needed again and might keep its owner alive.
        self.traces = [dataclasses.replace(t, touched=(), numbers=(), made=()) for t in self.traces]
        self.seen = {call.size_key: self._at_size(call, real, self.padded)}

    def _trace(self, call: _Call, sizes: Sizes) -> Traced:
        args, kwargs = call.at(sizes)
        return trace_for(self.function, args, kwargs)

    def _trace_beyond(self, call: _Call, sizes: Sizes) -> Traced:
        """The trace at sizes that no call has. Raises E0263 for what fails there alone."""
        try:
            return self._trace(call, sizes)
        except UserError as error:
            why = f"at the padded sizes {sizes} the function fails: {error.code} {error.why}"
            fix = "give buckets= that it can take, such as the size of its table"
            raise UserError("E0263", why, fix=fix, where=error.where) from None

    def _read(self, call: _Call, real: Traced) -> Padded:
        traces = [self.traces[0], real, *self.traces[1:]]
        for t in traces[1:]:
            _refuse_other_state(traces[0], t, self.bucket, call.sizes)
        points = [self.bucket, call.sizes, *self.points[1:]]
        return pad_fn([t.fn for t in traces], [t.fns for t in traces], points, call.axes)

    def admit(self, call: _Call) -> _AtSize | None:
        """What the program needs at the sizes of this call; None if another program is needed there."""
        real = self._trace(call, call.sizes)
        padded = self._read(call, real)
        if not self.relied >= {*map(id, real.touched), *[id(each[0]) for each in real.numbers]}:
            return None  # the program would not notice when these change
        if padded.out_axes != self.padded.out_axes or not same_fn(padded.fn, self.padded.fn):
            return None
        at = self._at_size(call, real, padded)
        if len(self.seen) >= _MOST_SEEN:
            self.seen.pop(next(iter(self.seen)))
        self.seen[call.size_key] = at
        return at

    def _at_size(self, call: _Call, real: Traced, padded: Padded) -> _AtSize:
        arrays = [np.array(call.sizes[name], np.int32) for name in self.bucket]
        arrays += [widened(e.array, e.axes, call.sizes, self.bucket) for e in padded.extras]
        return _AtSize([Tensor._of(pjrt.put(a)) for a in arrays], real.result)

    def _refuse_padded_state(self, traced: Traced, name: str) -> None:
        first = traced.num_outputs + len(traced.changed_args)
        for output, axes in zip(traced.fn.outputs[first:], self.padded.out_axes[first:], strict=True):
            if any(axes):
                why = f"{name} gives a parameter or buffer a value {output.type} whose size is dynamic"
                raise UserError("E0260", why, fix="return it instead, or keep what has a fixed size")

    def run(self, call: _Call, at: _AtSize) -> Any:
        """The results for the arguments of the call, cut to its sizes; changed arguments get their new values."""
        n = self.program.traced.num_outputs
        leaves = call.padded()
        outputs = self.program([*leaves, *at.inputs])
        axes = self.padded.out_axes
        dynamic = [leaf for leaf in call.leaves if is_dynamic(leaf)]
        for place, each in zip(self.program.traced.changed_args, axes[n:], strict=False):
            if leaves[place] is not dynamic[place]:
                dynamic[place]._value = _cut(leaves[place], each, call)._value
        return at.result([_cut(o, each, call) for o, each in zip(outputs, axes, strict=False)])


# ---------------------------------------------------------------------------------------------------------- arguments
def _read(dynamic: Mapping[Any, Any]) -> dict[Any, dict[int, str]]:
    """`dynamic=` checked: {argument: {axis: name}}. Raises E0263."""
    for argument, axes in dynamic.items():
        fits = isinstance(argument, str | int) and isinstance(axes, Mapping)
        if not fits or not all(isinstance(a, int) and isinstance(n, str) for a, n in axes.items()):
            why = f"dynamic has the entry {argument!r}: {axes!r}"
            raise UserError("E0263", why, fix='write {"x": {0: "batch", 1: "length"}}: argument, axis, dimension')
    return {argument: dict(axes) for argument, axes in dynamic.items()}


def _argument_names(function: Callable[..., Any]) -> list[str]:
    """The names of the arguments, of a cell those of its forward; none where Python does not tell them."""
    what = getattr(function, "forward", None) or getattr(function, "construct", None) or function
    try:
        return list(inspect.signature(what).parameters)
    except ValueError:
        return []


def _named_axes(
    owner: Dynamic, leaves: Sequence[Any], shape: tree.TreeDef, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[dict[int, str]]:
    """For each leaf, the dimension names of its axes. Raises E0262 for arguments that are not there."""
    positions = owner._names
    counts = [len(tree.flatten(a)[0]) for a in args]
    owners: list[Any] = [i for i, n in enumerate(counts) for _ in range(n)]
    for key, value in kwargs.items():
        owners += [key] * len(tree.flatten(value)[0])
    known: dict[Any, Any] = {**{i: i for i in range(len(args))}, **{k: k for k in kwargs}}
    known |= {name: i for i, name in enumerate(positions) if i < len(args)}
    known |= {i: name for i, name in enumerate(positions) if name in kwargs}
    missing = [a for a in owner.dynamic if a not in known and a not in positions]
    if missing:
        why = f"{owner.name} has no argument {missing[0]!r}"
        raise UserError("E0262", why, fix=f"name one of its arguments in dynamic=: {', '.join(positions)}")
    found: dict[Any, dict[int, str]] = {known[a]: axes for a, axes in owner.dynamic.items() if a in known}
    return [found.get(o, {}) if is_dynamic(leaf) else {} for o, leaf in zip(owners, leaves, strict=True)]


def _sizes_of(leaves: Sequence[Any], named: Sequence[dict[int, str]], paths: Sequence[str]) -> Sizes:
    """The size of each dimension. Raises E0262 when two arguments disagree, or an axis is not there."""
    sizes: Sizes = {}
    first: dict[str, str] = {}
    for leaf, axes, path in zip(leaves, named, paths, strict=True):
        for axis, name in axes.items():
            shape, what = leaf_type(leaf).shape, tree.argument_name(path)
            if not -len(shape) <= axis < len(shape):
                why = f"{what} has shape {list(shape)}: there is no axis {axis} to be {name}"
                raise UserError("E0262", why, fix="name axes that it has in dynamic=")
            if sizes.setdefault(name, shape[axis]) != shape[axis]:
                why = f"{name} is {sizes[name]} in {first[name]} and {shape[axis]} in axis {axis} of {what}"
                raise UserError("E0262", why, fix="pass arguments of one size, or use two names")
            first.setdefault(name, f"axis {axis} of {what}")
    return sizes


def _axes(leaf: Any, named: Mapping[int, str], bucket: Sizes) -> Axes:
    rank = len(leaf_type(leaf).shape)
    found: list[Axis] = [None] * rank
    for axis, name in named.items():
        if name in bucket:
            found[axis] = (Dim(name),)
    return tuple(found)


def _zeros(leaf: Any, shape: tuple[int, ...]) -> Any:
    zeros = np.zeros(shape, leaf_type(leaf).dtype.np)
    return Tensor._of(zeros) if is_tensor(leaf) else zeros


def _host(leaf: Any) -> np.ndarray[Any, Any]:
    return leaf.numpy() if is_tensor(leaf) else np.asarray(leaf)


def _grown(leaf: Any, axes: Axes, call: _Call) -> Any:
    array = widened(_host(leaf), axes, call.sizes, call.bucket)
    return Tensor._of(array) if is_tensor(leaf) else array


def _cut(tensor: Tensor, axes: Axes, call: _Call) -> Tensor:
    """A result at the real sizes."""
    if not any(axes):
        return tensor
    return Tensor._of(narrowed(tensor.numpy(), axes, call.sizes, call.bucket))


def _refuse_other_state(a: Traced, b: Traced, bucket: Sizes, sizes: Sizes) -> None:
    """Raise E0261 unless two traces read and change the same tensors."""
    same = all(len(x) == len(y) and all(map(_is, x, y)) for x, y in ((a.captured, b.captured), (a.changed, b.changed)))
    if not same or a.changed_args != b.changed_args or a.num_outputs != b.num_outputs:
        why = f"the function reads or changes other tensors at sizes {sizes} than at {bucket}"
        raise UserError("E0261", why, fix="do not branch in Python on a dynamic size")


def _is(x: Any, y: Any) -> bool:
    return x is y


__all__ = ["Buckets", "Dynamic"]
