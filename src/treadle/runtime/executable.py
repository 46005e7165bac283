"""A compiled program that cannot be called wrongly.

`Executable(module, inputs, outputs, donated)` compiles a StableHLO module (or takes it from the cache on disk);
`call([arrays]) -> [device arrays]` checks number, element types, shapes, placement and donation before XLA sees them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from treadle.base import cache, events
from treadle.base.dtypes import DType
from treadle.base.errors import UserError, internal_error
from treadle.ir.types import TensorType, type_of
from treadle.ops.effects import TOKEN
from treadle.runtime import calling, device, memory, pjrt


@dataclass(frozen=True)
class MemoryReport:
    """Bytes per device while the program runs. On the CPU, scratch of fused matrix products is not in `temporaries`."""

    arguments: int
    outputs: int
    temporaries: int
    aliased: int
    code: int

    @property
    def total(self) -> int:
        """Arguments, temporaries and outputs, those counted once that reuse a donated argument's memory."""
        return self.arguments + self.temporaries + self.outputs - self.aliased

    def __str__(self) -> str:
        mib = {"arguments": self.arguments, "temporaries": self.temporaries, "outputs": self.outputs,
               "reused": -self.aliased, "total": self.total}  # fmt: skip
        return ", ".join(f"{name} {value / 2**20:.2f} MiB" for name, value in mib.items())


@dataclass(frozen=True)
class Placement:
    """The devices of a program over several of them, and how each input and output is split.

    replicas: the module holds per-device shapes and explicit collectives; partitions: global shapes with sdy sharding.
    """

    devices: tuple[Any, ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    replicas: int = 1
    partitions: int = 1

    @staticmethod
    def on(device: Any, inputs: int, outputs: int) -> Placement:
        """Everything on one device."""
        return Placement((device,), (pjrt.single(device),) * inputs, (pjrt.single(device),) * outputs)


class Executable:
    """A compiled program. inputs, outputs: whole arrays (before splitting); donated: positions of inputs it consumes.

    module: an MLIR module, its text or its bytecode, with donation marked on the arguments of `main`.
    argument_names: for messages. callbacks: Python functions called from the program; such a program is not cached,
    nor is one with cacheable=False (one that holds addresses of this process). hosts: Python functions as the lowering
    lists them; if one acts, the module has a token as last parameter and last result, which is none of ours.
    Raises E0405 if it cannot fit, E0407 if XLA refuses the program, InternalError if the module has another signature.
    """

    def __init__(
        self,
        module: Any,
        inputs: Sequence[TensorType],
        outputs: Sequence[TensorType],
        donated: Sequence[int] = (),
        name: str = "program",
        *,
        placement: Placement | None = None,
        argument_names: Sequence[str] = (),
        overrides: Mapping[str, Any] | None = None,
        callbacks: Sequence[Callable[..., Any]] = (),
        hosts: Sequence[calling.Called] = (),
        cacheable: bool = True,
    ) -> None:
        self.name, self.inputs, self.outputs = name, tuple(inputs), tuple(outputs)
        self.donated, self.argument_names = tuple(donated), tuple(argument_names)
        self.placement = placement or Placement.on(pjrt.default_device(), len(self.inputs), len(self.outputs))
        self._token = (TOKEN,) if any(types is None for _, types in hosts) else ()
        module = pjrt.parse(module)
        self._check_module(module)
        self._check_size()
        start = time.perf_counter()
        self.from_cache, self.raw = load_or_compile(
            module, self.placement, overrides, [*callbacks, *calling.functions(hosts)], cacheable
        )
        self.compile_seconds = time.perf_counter() - start
        memory.use_huge_pages()  # compiling has used some of the heap that there was
        events.record("runtime", "compile", self.compile_seconds, program=name, cached=self.from_cache)
        self._avals = [pjrt.aval(t) for t in self.inputs]
        self._shardings = list(self.placement.inputs)
        last = [pjrt.single(self.placement.devices[0]) for _ in self._token]
        self._run = pjrt.runner(self.raw, (*self.outputs, *self._token), (*self.placement.outputs, *last))
        if hosts:
            self._run = calling.runner(self._run, bool(self._token))
        self._error, self._is_deleted = pjrt.execution_error(), pjrt.deleted_test()

    def call(self, arrays: Sequence[Any]) -> list[Any]:
        """Run on device or NumPy arrays; arrays on other devices are moved. Donated device arrays are gone afterwards.

        Raises E0401 (number, element type or shape), E0402 (an array was donated before), E0403 (a donated array is
        passed twice), E0404 (parts in other processes), E0405 (out of memory), E0406 (failed while running).
        """
        arrays = list(arrays)
        if not pjrt.has_signature(arrays, self._avals, self._shardings):
            arrays = self._admit(arrays)
        if any(map(self._is_deleted, arrays)):
            self._refuse_deleted(next(i for i, a in enumerate(arrays) if a.is_deleted()))
        if self.donated and len(set(map(id, arrays))) != len(arrays):
            self._refuse_repeated(arrays)
        return self.call_unchecked(arrays)

    def call_unchecked(self, arrays: Sequence[Any]) -> list[Any]:
        """Run on device arrays whose signature the caller has compared: any other input is undefined behaviour."""
        try:
            return self._run(arrays)
        except self._error as error:
            raise pjrt.explain(error, f"running {self.name}") from error

    __call__ = call

    def memory(self) -> MemoryReport:
        """What one device holds while the program runs, as the compiler planned it."""
        return MemoryReport(**pjrt.memory_stats(self.raw))

    def cost_analysis(self) -> dict[str, float]:
        """XLA's own counts; a loop's body counts once."""
        return pjrt.cost_analysis(self.raw)

    def hlo_text(self) -> str:
        """The optimised program."""
        return pjrt.hlo_text(self.raw)

    def __repr__(self) -> str:
        return f"<Executable {self.name}: {', '.join(map(str, self.inputs))} -> {', '.join(map(str, self.outputs))}>"

    def _argument(self, index: int) -> str:
        name = f" ({self.argument_names[index]})" if index < len(self.argument_names) else ""
        return f"{self.name}: argument {index}{name}"

    def _admit(self, arrays: list[Any]) -> list[Any]:
        """Check every argument and bring it to its place; nothing is copied before all are checked."""
        if len(arrays) != len(self.inputs):
            why = f"{self.name} takes {len(self.inputs)} arrays, not {len(arrays)}"
            raise UserError("E0401", why, fix="pass one array per input")
        on_device = [pjrt.is_array(a) for a in arrays]
        for index, (array, here) in enumerate(zip(arrays, on_device)):
            self._check_argument(index, array, here)
        return [self._place(*item) for item in zip(arrays, on_device, self._shardings)]

    def _check_argument(self, index: int, array: Any, on_device: bool) -> None:
        if not on_device and not isinstance(array, np.ndarray | np.generic):
            raise UserError(
                "E0401", f"{self._argument(index)} is a {type(array).__name__}, not an array", fix="use numpy.asarray"
            )
        wanted, given = self.inputs[index], type_of(array)
        if given != wanted:
            fix = "convert it with astype" if given.shape == wanted.shape else f"pass an array of type {wanted}"
            raise UserError("E0401", f"{self._argument(index)} is {given}, compiled for {wanted}", fix=fix)
        if on_device and array.is_deleted():
            self._refuse_deleted(index)

    def _place(self, array: Any, on_device: bool, sharding: Any) -> Any:
        if not on_device:
            return pjrt.put(array, sharding=sharding)
        return array if array.sharding == sharding else pjrt.move(array, sharding)

    def _refuse_deleted(self, index: int) -> NoReturn:
        raise UserError(
            "E0402", f"{self._argument(index)} was donated to an earlier call and is gone",
            fix="pass the result of that call, or a copy made before it",
        )  # fmt: skip

    def _refuse_repeated(self, arrays: list[Any]) -> None:
        for index in self.donated:
            for other, array in enumerate(arrays):
                if other != index and array is arrays[index]:
                    raise UserError(
                        "E0403", f"{self._argument(index)} is donated and is also argument {other}",
                        fix="pass a copy in one of the two places",
                    )  # fmt: skip

    def _check_module(self, module: Any) -> None:
        """The results are labelled with the stated types unseen, so the module must have exactly these."""
        inputs, outputs, donated = pjrt.main_signature(module)
        split = self.placement.replicas > 1
        wanted_in = [mlir_type(t, s if split else None) for t, s in zip(self.inputs, self.placement.inputs)]
        wanted_out = [mlir_type(t, s if split else None) for t, s in zip(self.outputs, self.placement.outputs)]
        token = [mlir_type(t) for t in self._token]
        stated = ([*wanted_in, *token], [*wanted_out, *token], tuple(sorted(self.donated)))
        if stated != (inputs, outputs, donated):
            internal_error(
                f"{self.name}: stated signature {stated} but the module has {(inputs, outputs, donated)}",
                module=str(module),
            )

    def _check_size(self) -> None:
        """Refuse what cannot fit before compiling it (jaxlib 0.12 dies of an array of 2**36 elements)."""
        limit, place = pjrt.memory_limit(self.placement.devices[0]), self.placement
        needed = sum(pjrt.local_type(t, s).bytes for t, s in zip(self.inputs, place.inputs))
        needed += sum(pjrt.local_type(t, s).bytes for t, s in zip(self.outputs, place.outputs))
        needed -= sum(pjrt.local_type(self.inputs[i], place.inputs[i]).bytes for i in self.donated)
        if limit is not None and needed > limit:
            why = f"{self.name}: inputs and outputs take {needed:,} bytes on one device, which has {limit:,}"
            raise UserError("E0405", why, fix="use a smaller batch, or split the arrays over more devices")


def load_or_compile(
    module: Any, placement: Placement, overrides: Mapping[str, Any] | None, callbacks: Sequence[Any], cacheable: bool
) -> tuple[bool, Any]:
    """Whether it came from the cache, and the loaded executable."""
    where = placement.devices
    options = pjrt.options(where, placement.replicas, placement.partitions, overrides)
    store = cache.current() if cacheable and not callbacks else None
    if store is None:
        return False, pjrt.compile(module, where, options, callbacks)
    key = program_key(module, where[0], options)
    if data := store.get(key):
        try:
            return True, pjrt.deserialize(data, where, options)
        except ValueError as error:
            store.discard(key, str(error))
    raw = pjrt.compile(module, where, options)
    store.put(key, pjrt.serialize(raw))
    return False, raw


def program_key(module: Any, where: Any, options: Any) -> str:
    """Cache key: the program without source positions, options, platform and jaxlib, and the host CPU."""
    return cache.key(
        pjrt.bytecode_without_positions(module),
        pjrt.options_bytes(options),
        pjrt.platform_identity(where),
        device.host().identity(),
    )


def mlir_type(type: TensorType, sharding: Any = None) -> str:
    """MLIR's text of a type, of one device's part if a sharding is given: f32[2,3] -> tensor<2x3xf32>."""
    shape = pjrt.local_type(type, sharding).shape if sharding is not None else type.shape
    return f"tensor<{''.join(f'{size}x' for size in shape)}{_element(type.dtype)}>"


def _element(dtype: DType) -> str:
    if dtype.kind == "b":
        return "i1"
    if dtype.kind == "c":
        return f"complex<f{dtype.bits // 2}>"
    return {"i": "i", "u": "ui", "f": "bf" if dtype.name == "bfloat16" else "f"}[dtype.kind] + str(dtype.bits)
