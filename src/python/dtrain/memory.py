"""Arrays in the library's memory: of the host, where the other ranks of a node reduce them where
they lie, or of this rank's GPU."""
from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np

from dtrain import _abi, _submit, errors
from dtrain._library import lib
from dtrain.device import DeviceArray

DEVICES = {"cpu": _abi.DEVICE_CPU, "cuda": _abi.DEVICE_CUDA}


def device_number(device: str) -> int:
    """The library's number of "cpu" or "cuda"."""
    if device not in DEVICES:
        raise ValueError(f"a device {device!r}; there are {', '.join(DEVICES)}")
    return DEVICES[device]


class _Block:
    """Memory of dtrain_mem_alloc, freed when no array shares it any more."""

    def __init__(self, nbytes: int, device: int):
        address = ctypes.c_void_p()
        errors.check(lib.dtrain_mem_alloc(address, nbytes, device))
        self.address = address.value
        # At the interpreter's end it is the shutdown that frees: operations may be in flight.
        weakref.finalize(self, _free, self.address, _submit.world_number()).atexit = False


def _free(address: int, world: int) -> None:
    if world == _submit.world_number():  # shutdown has freed it otherwise
        lib.dtrain_mem_free(address)


def empty(shape: Any, dtype: Any = np.float32, device: str = "cpu") -> np.ndarray | DeviceArray:
    """A new array of zeros in the library's memory. Operations on it, or on contiguous parts of it,
    copy nothing within a node. device="cuda": a DeviceArray in the memory of this rank's GPU, which
    NCCL may use without a copy. It must not be touched after dtrain.shutdown()."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    block = _Block(count * dtype.itemsize, device_number(device))
    if device == "cuda":
        extents = tuple(shape) if np.iterable(shape) else (shape,)
        return DeviceArray(block.address, extents, dtype, block)
    memory = (ctypes.c_char * max(count * dtype.itemsize, 1)).from_address(block.address)
    memory._block = block  # the array's base keeps it
    return np.frombuffer(memory, dtype, count).reshape(shape)
