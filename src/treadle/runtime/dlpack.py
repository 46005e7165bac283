"""DLPack: memory of device and NumPy arrays given to other libraries, and theirs taken.

`export` gives a capsule, `take` a NumPy or device array. Copies by default; shared memory is marked read-only where
the reader knows version 1 of the protocol. Source: the Python specification of DLPack, dmlc.github.io/dlpack.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.runtime import pjrt

_CPU = 1  # kDLCPU


def device_name(value: Any) -> str:
    """ "platform:number" of a device array; of a NumPy array or None that of the default device."""
    device = pjrt.default_device() if value is None or isinstance(value, np.ndarray) else next(iter(value.devices()))
    return f"{device.platform}:{device.id}"


def device_numbers(value: Any) -> tuple[int, int]:
    """(DLDeviceType, number) of an array."""
    kind, number = value.__dlpack_device__()
    return int(kind), int(number)


def export(
    value: Any, stream: Any, max_version: tuple[int, int] | None, dl_device: tuple[int, int] | None, copy: bool | None
) -> Any:
    """A capsule with the memory of an array: a copy that may be written, or the memory itself if copy is False.

    Raises BufferError for a device that the array is neither on nor can be copied to, and where copy=False is asked for
    and only a copy can be had.
    """
    here = device_numbers(value)
    wanted = here if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
    if wanted not in (here, (_CPU, 0)):
        raise BufferError(f"a tensor on DLPack device {here} cannot be exported to {wanted}")
    if copy is False:
        if wanted != here:
            raise BufferError(f"a tensor on DLPack device {here} gets to {wanted} by a copy only")
        return _shared(value, stream, max_version)
    if wanted[0] != _CPU:
        return pjrt.put(_host(value, copy=False)).__dlpack__(stream=stream)
    array = _host(value, copy=True)
    if array.dtype.isbuiltin != 1:  # bfloat16, which NumPy does not export; nobody else holds the new array
        return pjrt.put(array, device=pjrt.client("cpu").local_devices()[0]).__dlpack__()
    return array.__dlpack__(max_version=max_version)


def _shared(value: Any, stream: Any, max_version: tuple[int, int] | None) -> Any:
    """The memory itself, marked read-only where the version of the protocol (1.0) has a mark for it."""
    if not isinstance(value, np.ndarray):
        return value.__dlpack__(stream=stream, max_version=max_version)
    if value.dtype.isbuiltin != 1:
        raise BufferError(f"NumPy cannot export {value.dtype}: leave copy=False out")
    marked = max_version is not None and max_version[0] >= 1
    return (host_view(value) if marked else value).__dlpack__(max_version=max_version)


def host_view(value: Any) -> np.ndarray[Any, Any]:
    """The memory of an array on the CPU as a read-only NumPy array; of one elsewhere a copy."""
    view = _host(value, copy=False).view()
    view.flags.writeable = False
    return view


def _host(value: Any, copy: bool) -> np.ndarray[Any, Any]:
    if isinstance(value, np.ndarray):
        return value.copy() if copy else value
    return pjrt.to_numpy(value, copy=copy)


def take(x: Any, copy: bool | None) -> Any:
    """The array of any object with `__dlpack__`: a NumPy view of CPU memory, else a copy on the device.

    The caller copies the view unless copy is False. Raises BufferError for copy=False elsewhere than on the CPU.
    """
    if device_numbers(x)[0] != _CPU:
        if copy is False:
            raise BufferError("memory of an accelerator is copied: leave copy=False out")
        return pjrt.from_dlpack(x, copy=True)
    try:
        return np.from_dlpack(x)
    except RuntimeError as error:  # NumPy has no bfloat16
        if "dtype" not in str(error):
            raise
        return pjrt.to_numpy(pjrt.from_dlpack(x), copy=False)
