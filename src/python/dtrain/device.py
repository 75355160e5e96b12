"""Arrays in the memory of this rank's GPU, for all who know __cuda_array_interface__."""
from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from dtrain import errors
from dtrain._library import lib

# The interface's (and CUDA's) number of the default stream; 0 is none there.
DEFAULT_STREAM = 1


def cuda_device() -> int:
    """The number, in this process, of the GPU that this rank uses; it is chosen now when it was not
    before. Unsupported, with the reason, where there is none."""
    number = ctypes.c_int()
    errors.check(lib.dtrain_cuda_device(number))
    return number.value


class DeviceArray:
    """Elements in the memory of a GPU: what operations return there, and see of what they are given.

    It computes nothing itself. cupy.asarray(x), numba.cuda.as_cuda_array(x) and
    torch.as_tensor(x, device="cuda") share its memory, and keep it.
    """

    __slots__ = ("pointer", "shape", "dtype", "stream", "read_only", "base")

    def __init__(self, pointer: int, shape: tuple[int, ...], dtype: np.dtype, base: Any,
                 stream: int | None = None, read_only: bool = False):
        self.pointer = pointer      # 0 where there is no element
        self.shape = shape
        self.dtype = dtype
        self.stream = stream        # in which the elements come to be; None: not known
        self.read_only = read_only
        self.base = base            # whose memory it is

    @classmethod
    def of(cls, value: Any) -> DeviceArray:
        """What an object's __cuda_array_interface__ says. TypeError or ValueError where it says
        what no operation can take."""
        if type(value) is cls:
            return value
        said = value.__cuda_array_interface__
        shape, dtype = tuple(said["shape"]), np.dtype(said["typestr"])
        strides, stream = said.get("strides"), said.get("stream")
        if said.get("mask") is not None:
            raise TypeError("an array with a mask in the memory of a GPU")
        if strides is not None and not _are_dense(shape, tuple(strides), dtype.itemsize):
            raise ValueError(f"an array of shape {shape} with strides {tuple(strides)} is not "
                             "contiguous: pass a contiguous copy")
        if stream == 0:
            raise ValueError("__cuda_array_interface__ names stream 0: the default stream is 1 "
                             "there, and no stream is None")
        pointer, read_only = said["data"]
        return cls(pointer or 0, shape, dtype, value, stream, bool(read_only))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "shape": self.shape, "typestr": self.dtype.str,
                "data": (self.pointer, self.read_only), "strides": None, "stream": self.stream}

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Its size."""
        return self.size * self.dtype.itemsize

    def first(self, shape: tuple[int, ...]) -> DeviceArray:
        """The first elements, as an array of another shape in the same memory."""
        return DeviceArray(self.pointer, shape, self.dtype, self, self.stream, self.read_only)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<dtrain.DeviceArray {self.dtype} {self.shape} at {self.pointer:#x}>"


def _are_dense(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether elements lie row by row, without gaps. The stride of an extent of 1 says nothing."""
    expected = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != expected:
            return math.prod(shape) == 0
        expected *= extent
    return True
