"""The one door to jax and jaxlib: every private name of theirs is used here and listed in `PRIVATE`.

NumPy arrays become device arrays (`put`) and come back (`to_numpy`); a StableHLO module becomes a loaded executable
(`compile`), and that a function from device arrays to device arrays (`runner`). Nothing here checks arguments: PJRT
takes an array of the wrong element type as if its bits were right, so runtime/executable.py checks first. Modules,
devices, device arrays, shardings and loaded executables are jax's objects and opaque to the rest of Treadle.
jax's configuration is left as the user has it, but for `jax_platforms` where TREADLE_PLATFORM names one: 64-bit types
are kept because types are always given, never inferred.
"""

from __future__ import annotations

import ctypes
import importlib
import io
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from treadle.base import leaving
from treadle.base.errors import InternalError, UserError, internal_error
from treadle.base.flags import flags
from treadle.ir.types import TensorType, type_of
from treadle.runtime import memory

# Module -> names that carry no promise of stability ("Class.attribute" where an attribute is meant).
PRIVATE: dict[str, tuple[str, ...]] = {
    "jaxlib._jax": (
        "batched_device_put",
        "array_result_handler",
        "HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL",
        "HostBufferSemantics.ZERO_COPY",
        "DeviceList",
        "Client.compile_and_load",
        "Client.deserialize_executable",
        "Client.serialize_executable",
        "Client.local_devices",
        "Client.platform_version",
        "CompileOptions.SerializeAsString",
        "LoadedExecutable.execute_sharded",
        "LoadedExecutable.get_compiled_memory_stats",
        "LoadedExecutable.cost_analysis",
        "LoadedExecutable.hlo_modules",
        "LoadedExecutable.size_of_generated_code_in_bytes",
        "ExecuteResults.consume_with_handlers",
        "ArrayImpl._sharding",
        "ArrayImpl.aval",
        "ArrayImpl.is_deleted",
        "ArrayImpl._single_device_array_to_np_array_did_copy",
    ),
    "jax.core": ("ShapedArray",),
    "jax.errors": ("JaxRuntimeError",),
    "jax.interpreters.mlir": ("make_ir_context",),
    "jax.extend.backend": ("get_backend", "get_compile_options"),
    "jax.extend.mlir.ir": ("Context", "Module", "Location"),
    "jaxlib.mlir.passmanager": ("PassManager.parse",),
    "jaxlib.lapack": ("prepare_lapack_call",),
}


class _Library:
    """What is used of jax, loaded once."""

    def __init__(self) -> None:
        memory.tune_malloc()  # before jaxlib makes its first allocation
        self.jax = importlib.import_module("jax")  # before jaxlib, whose log level it sets
        if missing := missing_names():
            raise UserError(
                "E0410",
                f"this jax/jaxlib lacks {', '.join(missing)}",
                fix="install the versions of jax and jaxlib that pyproject.toml names",
            )
        self.ext = importlib.import_module("jaxlib._jax")
        self.backend = importlib.import_module("jax.extend.backend")
        self.ir = importlib.import_module("jax.extend.mlir.ir")
        self.make_context = importlib.import_module("jax.interpreters.mlir").make_ir_context
        self.passes = importlib.import_module("jaxlib.mlir.passmanager").PassManager
        self.error: type[Exception] = self.jax.errors.JaxRuntimeError
        self.array: type[Any] = self.jax.Array
        self.during_call = self.ext.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
        self.zero_copy = self.ext.HostBufferSemantics.ZERO_COPY
        # jaxlib 0.10 checks every result unless told not to; 0.12 never does and has no such argument.
        unchecked = "_skip_checks" in (self.ext.array_result_handler.__doc__ or "")
        self.handler_options = {"_skip_checks": True} if unchecked else {}


_lock = threading.RLock()
_library: _Library | None = None


def _load() -> _Library:
    """jax and jaxlib, imported at the first use. Raises E0410 if they lack a name that this file needs."""
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                _library = _Library()
                leaving.first()
    return _library


def missing_names() -> list[str]:
    """The names of `PRIVATE` that the installed jax and jaxlib do not have; empty if all is well."""
    missing = []
    for module_name, names in PRIVATE.items():
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError:
            missing.append(module_name)
            continue
        for name in names:
            value: Any = module
            for part in name.split("."):
                value = getattr(value, part, None)
            if value is None:
                missing.append(f"{module_name}.{name}")
    return missing


def versions() -> dict[str, str]:
    """The versions of jax and jaxlib."""
    jax = _load().jax
    return {"jax": jax.__version__, "jaxlib": importlib.import_module("jaxlib").__version__}


# --- devices ----------------------------------------------------------------------------------------------------------


def client(platform: str | None = None) -> Any:
    """The PJRT client of a platform (default: TREADLE_PLATFORM, else the best of this machine). Raises E0408."""
    return _client(flags.platform if platform is None else platform)


@lru_cache(maxsize=16)
def _client(platform: str) -> Any:
    lib = _load()
    with _lock:
        before = lib.jax.config.jax_platforms
        if platform and not before:
            # Start only what is asked for: a CPU program must not take hold of the GPU's memory.
            lib.jax.config.update("jax_platforms", platform if platform == "cpu" else f"{platform},cpu")
        try:
            return lib.backend.get_backend(platform or None)
        except RuntimeError as error:
            lib.jax.config.update("jax_platforms", before)
            raise UserError(
                "E0408", f"platform {platform or 'of this machine'!r} cannot be started: {error}",
                fix="set TREADLE_PLATFORM to cpu, or install the jax plug-in of the device",
            ) from error  # fmt: skip


def devices(platform: str | None = None, everywhere: bool = False) -> list[Any]:
    """The devices of this process, or of all processes of the job."""
    c = client(platform)
    return list(c.devices() if everywhere else c.local_devices())


def default_device() -> Any:
    """The first device of the default platform."""
    return _default_device(flags.platform)


@lru_cache(maxsize=16)
def _default_device(platform: str) -> Any:
    return client(platform).local_devices()[0]


def device_memory(device: Any) -> dict[str, int] | None:
    """Bytes in use and available on a device, as its driver reports them; None where it does not (CPU)."""
    stats: dict[str, int] | None = device.memory_stats()
    return stats


def memory_limit(device: Any) -> int | None:
    """Bytes that programs on a device can have at most; None if unknown."""
    if device.platform == "cpu":
        return memory.total_bytes()
    return (device_memory(device) or {}).get("bytes_limit")


def platform_identity(device: Any) -> str:
    """Text that differs between platforms whose compiled programs must not be exchanged (the host CPU's apart)."""
    return "|".join((device.client.platform, device.client.platform_version, device.device_kind, str(versions())))


@lru_cache(maxsize=1024)
def single(device: Any) -> Any:
    """The sharding that puts a whole array on one device; the same object every time."""
    return _load().jax.sharding.SingleDeviceSharding(device)


def mesh_sharding(mesh: Mapping[str, int], spec: Sequence[Any], devices: Sequence[Any]) -> Any:
    """How an array is split over a mesh. mesh: axis name -> size, in device order; spec: per dimension an axis name,
    a tuple of them, or None for not split."""
    sharding = _load().jax.sharding
    grid = np.array(list(devices), dtype=object).reshape(tuple(mesh.values()))
    return sharding.NamedSharding(sharding.Mesh(grid, tuple(mesh)), sharding.PartitionSpec(*spec))


def local_type(type: TensorType, sharding: Any) -> TensorType:
    """The part of an array that one device holds."""
    return type.with_shape(tuple(sharding.shard_shape(type.shape)))


# --- arrays -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16384)
def aval(type: TensorType) -> Any:
    """jax's name for a type; the same object every time, so that comparing signatures is comparing addresses."""
    return _load().jax.core.ShapedArray(type.shape, type.dtype.np)


def is_array(value: Any) -> bool:
    """True for a device array."""
    return isinstance(value, _load().array)


def has_signature(arrays: list[Any], avals: list[Any], shardings: list[Any]) -> bool:
    """Whether these are device arrays of exactly these types and places; usually compares addresses only.

    False may also mean "look closer": a NumPy array, or an equivalent type written another way.
    """
    try:
        return [a.aval for a in arrays] == avals and [a._sharding for a in arrays] == shardings
    except AttributeError:
        return False


def _assemble(array: Any) -> np.ndarray[Any, Any]:
    """The whole of an array split over devices. Piece by piece, because jaxlib 0.12 misreads the pieces' shape when
    the array is the result of a program with replicas and is asked for as a whole."""
    whole: np.ndarray[Any, Any] = np.empty(array.shape, array.dtype)
    for piece in array.addressable_shards:
        if piece.replica_id == 0:
            whole[piece.index] = to_numpy(piece.data, copy=False)
    return whole


def twin(array: Any) -> Any:
    """Another object for the same device memory. Donating either takes it from both: the twin counts as a holder of
    `array`, and is itself one of `twins` as long as it lives."""
    lib = _load()
    handler = lib.ext.array_result_handler(array.aval, array.sharding, committed=True, **lib.handler_options)
    made = handler([array])
    made.base = array
    key = id(made)
    twins[key] = weakref.ref(made, lambda _: twins.pop(key))
    return made


twins: dict[int, weakref.ref[Any]] = {}


def deleted_test() -> Callable[[Any], bool]:
    """The function that says whether a device array was donated; as a plain function, for `any(map(f, arrays))`."""
    test: Callable[[Any], bool] = _load().ext.ArrayImpl.is_deleted
    return test


def put(array: Any, device: Any = None, sharding: Any = None) -> Any:
    """A copy of a NumPy array (any layout, any byte order) on a device, or split over devices by a sharding.

    Default: the first device of the default platform. Raises E0101 for element types that Treadle does not have.
    """
    lib = _load()
    array = np.asarray(array)
    type = type_of(array)
    if array.dtype != type.dtype.np:  # foreign byte order
        array = array.astype(type.dtype.np)
    if sharding is None:
        sharding = single(default_device() if device is None else device)
    if len(sharding.device_set) == 1:
        parts, where = [array], list(sharding.device_set)
    else:
        slices = sharding.addressable_devices_indices_map(type.shape)
        parts, where = [array[index] for index in slices.values()], list(slices)
    try:
        # committed, copied even where the device could read the host's memory, 64-bit types kept
        return lib.ext.batched_device_put(aval(type), sharding, parts, where, True, True, lib.during_call, True)
    except lib.error as error:
        raise explain(error, f"copying {type} to {where[0]}") from error


def adopt(array: np.ndarray[Any, Any]) -> Any:
    """A device array in the memory of a NumPy array, on the default device, which is the CPU: one that lies at a
    multiple of 64 bytes, is dense and is not changed any more. It is freed with the last of the two."""
    lib, device = _load(), default_device()
    type = aval(type_of(array))
    return lib.ext.batched_device_put(type, single(device), [array], [device], True, False, lib.zero_copy, True)


def move(array: Any, sharding: Any) -> Any:
    """A device array placed as `sharding` says. Raises E0404 if parts of it are in other processes."""
    if not array.is_fully_addressable:
        raise UserError("E0404", "the array has parts in other processes and cannot be moved", fix="gather it first")
    if len(sharding.device_set) == 1 and len(array.sharding.device_set) == 1:
        lib = _load()
        where = list(sharding.device_set)
        return lib.ext.batched_device_put(
            aval(type_of(array)), sharding, [array], where, True, False, lib.during_call, True
        )
    return put(to_numpy(array), sharding=sharding)


def to_numpy(array: Any, copy: bool = True) -> np.ndarray[Any, Any]:
    """The values of a device array; waits for them. Raises E0402 if it was donated, E0404 if it is not all here.

    copy=False may give a read-only view of the device's memory: while it lives, donating the array copies it.
    """
    lib = _load()
    if array.is_deleted():
        raise UserError("E0402", "the array was donated to a program and is gone", fix="use the program's result")
    try:
        if len(array.sharding.device_set) == 1:
            # Not np.asarray(array): that keeps a view inside the array, and donation would copy ever after.
            value, copied = array._single_device_array_to_np_array_did_copy()
        elif array.is_fully_addressable:
            value, copied = _assemble(array), True
        else:
            raise UserError("E0404", "the array has parts in other processes", fix="gather it first")
    except lib.error as error:
        raise explain(error, "computing an array") from error
    result: np.ndarray[Any, Any] = value
    return result.copy() if copy and not (copied and result.flags.writeable) else result


def from_dlpack(x: Any, copy: bool | None = None) -> Any:
    """A device array of an object with `__dlpack__`, 64-bit types kept; copy=None: of the same memory if that works."""
    default_device()
    lib = _load()
    with lib.jax.enable_x64(True):
        return lib.jax.dlpack.from_dlpack(x, copy=copy)


def block_until_ready(arrays: Sequence[Any]) -> None:
    """Wait until device arrays are computed; raises what went wrong while computing them (E0405, E0406)."""
    lib = _load()
    try:
        lib.jax.block_until_ready(list(arrays))
    except lib.error as error:
        raise explain(error, "computing an array") from error


# --- modules ----------------------------------------------------------------------------------------------------------


def mlir_context() -> Any:
    """A new MLIR context with stablehlo, chlo, func and sdy: `with mlir_context(): ...` for one lowering.

    New each time (2 ms), because a context never forgets the constants that were built in it.
    """
    return _load().make_context()


def parse(module: Any) -> Any:
    """An MLIR module from its text or bytecode; a module is returned as it is. InternalError if it is not valid."""
    lib = _load()
    if not isinstance(module, str | bytes):
        return module
    with mlir_context():
        try:
            return lib.ir.Module.parse(module)
        except lib.ir.MLIRError as error:
            text = module if isinstance(module, str) else ""
            internal_error(f"the lowered program is not valid StableHLO: {error}", module=text)


def bytecode(module: Any) -> bytes:
    """MLIR bytecode of a module, source positions included."""
    file = io.BytesIO()
    module.operation.write_bytecode(file)
    return file.getvalue()


def bytecode_without_positions(module: Any) -> bytes:
    """MLIR bytecode that does not change when the user's file only moves by some lines."""
    lib = _load()
    with module.context:
        bare = module.operation.clone()
        lib.passes.parse("builtin.module(strip-debuginfo)").run(bare.operation)
        file = io.BytesIO()
        bare.operation.write_bytecode(file)
    return file.getvalue()


def main_signature(module: Any) -> tuple[list[str], list[str], tuple[int, ...]]:
    """Of the function `main`: MLIR types of inputs and of outputs, and which inputs are donated."""
    for function in module.body.operations:
        if function.operation.name == "func.func" and function.name.value == "main":
            attributes = function.arg_attrs if "arg_attrs" in function.attributes else []
            donated = tuple(i for i, a in enumerate(attributes) if "tf.aliasing_output" in a or "jax.buffer_donor" in a)
            return [str(t) for t in function.type.inputs], [str(t) for t in function.type.results], donated
    raise InternalError("the lowered program has no function main")


# --- programs ---------------------------------------------------------------------------------------------------------


# No kernels whose additions come in any order, and none chosen by measuring; other platforms pass over these.
_DETERMINISTIC = {"xla_gpu_deterministic_ops": True, "xla_gpu_autotune_level": 0}


def options(
    devices: Sequence[Any], replicas: int = 1, partitions: int = 1, overrides: Mapping[str, Any] | None = None
) -> Any:
    """Compile options for `replicas * partitions` devices; overrides: XLA's debug options by name."""
    grid = np.array(list(devices), dtype=object).reshape(replicas, partitions)
    settings = {**(_DETERMINISTIC if flags.deterministic else {}), **(overrides or {})}
    made = _load().backend.get_compile_options(
        replicas, partitions, device_assignment=grid, env_options_overrides=settings
    )
    made.executable_build_options.use_spmd_partitioning = partitions > 1
    return made


def options_bytes(options: Any) -> bytes:
    """The options as bytes for a cache key; XLA_FLAGS are part of them."""
    data: bytes = options.SerializeAsString()
    return data


def compile(module: Any, devices: Sequence[Any], options: Any, callbacks: Sequence[Callable[..., Any]] = ()) -> Any:
    """A loaded executable of an MLIR module. callbacks: Python functions that custom calls name by index.

    Raises E0407 if XLA refuses the program on this platform, E0405 if it runs out of memory.
    """
    lib = _load()
    maker = devices[0].client
    program = bytecode(module)
    register_lapack(program, devices[0].platform)
    if not callbacks and b"xla_ffi_python_" in program:  # XLA would call through a wild pointer
        internal_error("a program that calls Python is compiled without the functions")
    try:
        with leaving.held():
            if callbacks:
                where = lib.ext.DeviceList(tuple(devices))
                return maker.compile_and_load(module, where, options, host_callbacks=list(callbacks))
            return maker.compile_and_load(program, list(devices), options)
    except (lib.error, lib.ir.MLIRError, ValueError) as error:
        raise explain(error, f"compiling for {devices[0].platform}", "E0407") from error


def register_lapack(program: bytes, platform: str) -> None:
    """Give jaxlib's custom calls their LAPACK (SciPy's) before a program that names one. Raises E0414 on a platform
    other than the CPU, which has no such calls."""
    if b"lapack_" not in program:
        return
    if platform != "cpu":
        why = f"the program was made for CPUs: it calls LAPACK, which {platform} does not have"
        raise UserError("E0414", why, fix="lower it for this platform, or run it with TREADLE_PLATFORM=cpu")
    # importing jax has registered the targets
    importlib.import_module("jaxlib.lapack").prepare_lapack_call("potrf_ffi", np.dtype(np.float32))


def register_kernel(name: str, address: int) -> None:
    """Let CPU programs call the function at an address, which takes XLA's call frame, by a name; once per name."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    _load().jax.ffi.register_ffi_target(name, new(address, None, None), platform="cpu")


def serialize(executable: Any) -> bytes:
    """The compiled program as bytes, for `deserialize` on the same platform, CPU and jaxlib. Callbacks are lost."""
    data: bytes = executable.client.serialize_executable(executable)
    return data


def deserialize(data: bytes, devices: Sequence[Any], options: Any) -> Any:
    """The loaded executable. This runs code from `data`: trust it first. Raises ValueError if it cannot be loaded."""
    lib = _load()
    register_lapack(data, devices[0].platform)
    try:
        return devices[0].client.deserialize_executable(data, list(devices), options)
    except lib.error as error:
        raise ValueError(str(error)) from error


def runner(
    executable: Any, types: Sequence[TensorType], shardings: Sequence[Any]
) -> Callable[[Sequence[Any]], list[Any]]:
    """The fastest way to run: device arrays in, device arrays out, no checks. types, shardings: of the results."""
    lib = _load()
    handler, more = lib.ext.array_result_handler, lib.handler_options
    handlers = [handler(aval(t), s, committed=True, **more) for t, s in zip(types, shardings)]
    execute = executable.execute_sharded

    def run(arrays: Sequence[Any]) -> list[Any]:
        results: list[Any] = execute(arrays).consume_with_handlers(handlers)
        return results

    return run


def execution_error() -> type[Exception]:
    """The exception that a run may raise; `explain` translates it."""
    return _load().error


def explain(error: Exception, doing: str, code: str = "E0406") -> UserError:
    """What went wrong in XLA, said with our codes: E0402 donated, E0403 donated twice, E0405 memory, else `code`."""
    text = str(error)
    if "deleted or donated" in text:
        return UserError("E0402", f"{doing}: {text}", fix="use the result of the program that the array was donated to")
    if "donated in the same call" in text:
        return UserError("E0403", f"{doing}: {text}", fix="pass a copy in one of the two places")
    if "RESOURCE_EXHAUSTED" in text or "ut of memory" in text:
        return UserError("E0405", f"{doing}: out of memory: {text}", fix="use a smaller batch, or treadle.checkpoint")
    return UserError(code, f"{doing}: {text}", fix="the text above comes from XLA or from a Python callback")


def memory_stats(executable: Any) -> dict[str, int]:
    """Bytes of arguments, outputs, temporaries, outputs that share memory with arguments, and machine code."""
    stats = executable.get_compiled_memory_stats()
    return {
        "arguments": stats.argument_size_in_bytes,
        "outputs": stats.output_size_in_bytes,
        "temporaries": stats.temp_size_in_bytes,
        "aliased": stats.alias_size_in_bytes,
        "code": executable.size_of_generated_code_in_bytes(),
    }


def cost_analysis(executable: Any) -> dict[str, float]:
    """XLA's own counts (flops, bytes accessed). It counts the body of a loop once: not for budgets."""
    return dict(executable.cost_analysis())


def hlo_text(executable: Any) -> str:
    """The optimised program as XLA runs it."""
    return "\n".join(module.to_string() for module in executable.hlo_modules())
