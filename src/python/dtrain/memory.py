"""Arrays in the library's memory, which the other ranks of a node reduce where they lie."""
from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np

from dtrain import _abi, _submit, errors
from dtrain._library import lib


class _Block:
    """Memory of dtrain_mem_alloc, freed when no array shares it any more."""

    def __init__(self, nbytes: int):
        address = ctypes.c_void_p()
        errors.check(lib.dtrain_mem_alloc(address, nbytes, _abi.DEVICE_CPU))
        self.address = address.value
        weakref.finalize(self, _free, self.address, _submit.world_number())


def _free(address: int, world: int) -> None:
    if world == _submit.world_number():  # shutdown has freed it otherwise
        lib.dtrain_mem_free(address)


def empty(shape: Any, dtype: Any = np.float32) -> np.ndarray:
    """A new array of zeros in the library's memory. Operations on it, or on contiguous parts of it,
    copy nothing within a node. It must not be touched after dtrain.shutdown()."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    block = _Block(count * dtype.itemsize)
    memory = (ctypes.c_char * max(count * dtype.itemsize, 1)).from_address(block.address)
    memory._block = block  # the array's base keeps it
    return np.frombuffer(memory, dtype, count).reshape(shape)
