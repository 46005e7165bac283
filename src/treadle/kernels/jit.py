"""From LLVM IR to code in memory: `load(text)` gives a `Code`, compiled once and kept on disk.

`code.handler` is the address that XLA calls (see launch.py); `code.run(arrays)` calls the kernel directly on NumPy
arrays, inputs and outputs in order, with as many Python threads as asked for: for tests and measurements.
Several threads may load different texts at once, and LLVM then works for all of them.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import lru_cache
from typing import Any

import numpy as np

from treadle.base import cache, events, leaving
from treadle.kernels import launch, pool
from treadle.kernels.target import Target, host, llvm

SLOT_BYTES = 8 << 20  # scratch that one task may use; touched pages only cost memory
_LEVEL = 2
_SHARED = ("treadle_launch", "treadle_worker")  # what kernels find in the runtime's module
_SYMBOL_TABLE, _SYMBOL_BYTES = 2, 24  # of ELF
_lock = threading.RLock()
_loaded: dict[str, Future[Code]] = {}


class Code:
    """A loaded module: `address(name)` of its functions. Lives as long as the process: programs may call it."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def address(self, name: str) -> int:
        """Where a function or constant of the module is. Raises KeyError if there is none."""
        found = int(self._engine.get_function_address(name)) or int(self._engine.get_global_value_address(name))
        if not found:
            raise KeyError(name)
        return found

    @property
    def handler(self) -> int:
        """The function that XLA calls."""
        return self.address("call")

    def set_pointer(self, name: str, address: int) -> None:
        """Write an address into a global of the module."""
        ctypes.c_void_p.from_address(self.address(name)).value = address

    def run(self, arrays: Sequence[np.ndarray[Any, Any]], threads: int = 1) -> None:
        """Call the kernel on arrays whose types it was made for (nothing is checked); outputs are written in place."""
        begin, worker = _entries()
        places = (ctypes.c_void_p * len(arrays))(*[a.ctypes.data for a in arrays])
        context = begin(ctypes.addressof(places), self.address("describe"), threads)
        others = [threading.Thread(target=worker, args=(context,)) for _ in range(threads - 1)]
        for thread in others:
            thread.start()
        worker(context)
        for thread in others:
            thread.join()


def load(text: str, target: Target | None = None) -> Code:
    """The code of a module that launch.finish has completed. Raises RuntimeError, with LLVM's words, for wrong IR."""
    target = target or host()
    _runtime()
    return _load(key_of(text, target), target, lambda: compile_object(text, target))


def key_of(text: str, target: Target) -> str:
    """The name under which the code of a text is kept on disk."""
    return cache.key("kernel", text, target.triple, target.cpu, target.text(), str(_LEVEL), _version())


def recall(key: str) -> Code | None:
    """The code for this machine that was kept under a key (`key_of`); None if it is not there any more."""

    def absent() -> bytes:
        raise LookupError(key)

    _runtime()
    try:
        return _load(key, host(), absent)
    except LookupError:
        return None


def _load(key: str, target: Target, compile: Callable[[], bytes]) -> Code:
    """One thread makes the code of a key, others wait for it; threads with different keys work at the same time."""
    with _lock:
        found = _loaded.get(key)
        mine = found is None
        if found is None:
            found = _loaded[key] = Future()
    if mine:
        try:
            with leaving.held():
                made = _made(key, target, compile)
            found.set_result(made)
        except BaseException as error:
            with _lock:
                _loaded.pop(key, None)
            found.set_exception(error)
    return found.result()


def _made(key: str, target: Target, compile: Callable[[], bytes]) -> Code:
    start = time.perf_counter()
    store = cache.current()
    body = store.get(key) if store is not None else None
    if body is None:
        body = compile()
        if store is not None:
            store.put(key, body)
    code = _link(body, target)
    events.record("kernels", "load", time.perf_counter() - start, bytes=len(body))
    return code


def compile_object(text: str, target: Target) -> bytes:
    """The machine code of a module, as an object file. Raises RuntimeError for wrong IR."""
    binding = llvm()
    module, machine = _optimised(text, target)
    why = ctypes.c_char_p()
    found = _unlocked("LLVMPY_TargetMachineEmitToMemory", ctypes.c_void_p)(
        _pointer(machine), _pointer(module), ctypes.c_int(1), ctypes.byref(why)
    )
    if not found:
        raise RuntimeError(f"LLVM could not write a kernel's machine code: {(why.value or b'').decode()}")
    place = ctypes.cast(found, binding.ffi.LLVMMemoryBufferRef)
    library = binding.ffi.lib
    try:
        return ctypes.string_at(library.LLVMPY_GetBufferStart(place), library.LLVMPY_GetBufferSize(place))
    finally:
        library.LLVMPY_DisposeMemoryBuffer(place)


def assembly(text: str, target: Target | None = None) -> str:
    """The machine code of a module, to be read."""
    module, machine = _optimised(text, target or host())
    return str(machine.emit_assembly(module))


def _optimised(text: str, target: Target) -> tuple[Any, Any]:
    binding = llvm()
    machine = _machine(target)
    module = binding.parse_assembly(text, context=binding.create_context())
    module.verify()
    options = binding.create_pipeline_tuning_options(speed_level=_LEVEL)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    passes = binding.create_pass_builder(machine, options)
    manager = passes.getModulePassManager()
    _unlocked("LLVMPY_RunNewModulePassManager", None)(_pointer(manager), _pointer(module), _pointer(passes))
    return module, machine


def _unlocked(name: str, result: Any) -> Callable[..., Any]:
    """A function of llvmlite's library without the lock that llvmlite holds during every call. LLVM needs none where
    each thread has a context, a module and a target machine of its own, as here."""
    library = llvm().ffi.lib
    function = ctypes.CDLL(library._name, handle=library._handle)[name]
    function.restype = result
    made: Callable[..., Any] = function
    return made


def _pointer(made: Any) -> ctypes.c_void_p:
    """The address of one of LLVM's objects that llvmlite holds."""
    return ctypes.cast(made._ptr, ctypes.c_void_p)


def _machine(target: Target) -> Any:
    """LLVM's generator of code for a target: a new one each time, because an engine takes its own to be freed."""
    made = llvm().Target.from_triple(target.triple)
    return made.create_target_machine(
        cpu=target.cpu, features=target.text(), opt=_LEVEL, reloc="pic", codemodel="jitdefault", jit=True
    )


def _link(body: bytes, target: Target) -> Code:
    """An object file in memory, ready to run. Raises RuntimeError for one that calls what is not there: LLVM would take
    address 0 for it."""
    binding = llvm()
    process = ctypes.CDLL(None)
    missing = [name for name in undefined(body) if name not in _SHARED and not hasattr(process, name)]
    if missing:
        raise RuntimeError(f"the code of a kernel calls {', '.join(missing)}, which this process does not have")
    empty = binding.parse_assembly("", context=binding.create_context())
    engine = binding.create_mcjit_compiler(empty, _machine(target))
    engine.add_object_file(binding.ObjectFileRef.from_data(body))
    engine.finalize_object()
    return Code(engine)


def undefined(body: bytes) -> list[str]:
    """The names that an object file takes from elsewhere (64-bit ELF; of other formats none are known)."""
    if body[:6] != b"\x7fELF\x02\x01":
        return []
    (offset,) = struct.unpack_from("<Q", body, 0x28)
    size, count = struct.unpack_from("<HH", body, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", body, offset + i * size) for i in range(count)]
    found = []
    for section in sections:
        if section[1] == _SYMBOL_TABLE:
            names = sections[section[6]][4]
            for at in range(section[4], section[4] + section[5], _SYMBOL_BYTES):
                name, _, _, home = struct.unpack_from("<IBBH", body, at)
                if name and home == 0:
                    start = names + name
                    found.append(body[start : body.index(b"\0", start)].decode())
    return [name for name in found if name != "_GLOBAL_OFFSET_TABLE_"]


@lru_cache(maxsize=1)
def _version() -> str:
    import llvmlite

    return str(llvmlite.__version__)


# ----------------------------------------------------------------------------------------------- what kernels share
def _runtime() -> tuple[Code, Any]:
    """The shared functions, known by name to kernels that are loaded later; and the memory that they hold."""
    with _lock:
        return _first_runtime()


@lru_cache(maxsize=1)
def _first_runtime() -> tuple[Code, Any]:
    target, binding = host(), llvm()
    slots = max(4 * target.cores, 8)
    x86, tiles = target.triple.startswith("x86"), target.has("amx")
    text = launch.runtime(slots, SLOT_BYTES, x86, tiles)
    code = _load(key_of(text, target), target, lambda: compile_object(text, target))
    held = mmap.mmap(-1, slots * SLOT_BYTES + mmap.PAGESIZE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        held.madvise(mmap.MADV_HUGEPAGE)
    flags = np.zeros((slots + 1) * launch.LINE // 8, np.int64)
    shape = _tile_shape()
    scratch = ctypes.addressof(ctypes.c_char.from_buffer(held))
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(code.address("treadle_init"))(
        scratch, flags.ctypes.data, shape.ctypes.data
    )
    boxes, helpers = pool.start(code, target.cores - 1)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address("treadle_helpers"))(boxes, helpers)
    for name in _SHARED:
        binding.add_symbol(name, code.address(name))
    return code, (held, flags, shape)


def _tile_shape() -> np.ndarray[Any, Any]:
    """AMX's configuration: eight tiles of 16 rows of 64 bytes."""
    shape = np.zeros(64, np.uint8)
    shape[0] = 1
    shape[16:32:2] = 64
    shape[48:56] = 16
    return shape


@lru_cache(maxsize=1)
def entry() -> Any:
    """The function (address of the buffers' addresses, address of a description) that calls a kernel with the helpers'
    help."""
    code, _ = _runtime()
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(code.address("treadle_call"))


@lru_cache(maxsize=1)
def _entries() -> tuple[Any, Any]:
    code, _ = _runtime()
    begin = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    worker = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    return begin(code.address("treadle_begin")), worker(code.address("treadle_worker"))
