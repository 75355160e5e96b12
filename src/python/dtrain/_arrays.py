"""What an operation's argument may be, and where its elements lie."""
from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from dtrain import _abi, memory
from dtrain._starting import Framework
from dtrain._submit import Buffer, Held
from dtrain.device import DeviceArray

_NUMPY_TYPES = {
    "uint8": _abi.DTYPE_U8, "int8": _abi.DTYPE_I8, "int16": _abi.DTYPE_I16,
    "uint16": _abi.DTYPE_U16, "int32": _abi.DTYPE_I32, "int64": _abi.DTYPE_I64,
    "float16": _abi.DTYPE_F16, "float32": _abi.DTYPE_F32, "float64": _abi.DTYPE_F64,
    "bool": _abi.DTYPE_BOOL,
    "bfloat16": _abi.DTYPE_BF16,  # of the package ml_dtypes, which JAX and others use
}
_BY_DTYPE: dict[Any, int] = {np.dtype(name): number for name, number in _NUMPY_TYPES.items()
                             if name != "bfloat16"}


def dtype_number(dtype: Any) -> int:
    """The library's number of a numpy dtype; TypeError when it has none."""
    number = _BY_DTYPE.get(dtype)
    if number is None:
        number = _NUMPY_TYPES.get(dtype.name if dtype.isnative else "")
        if number is None:
            raise TypeError(f"arrays of {dtype!r} cannot be sent; the types are "
                            + ", ".join(_NUMPY_TYPES))
        _BY_DTYPE[dtype] = number
    return number


def as_array(value: Any) -> np.ndarray | DeviceArray:
    """An array that shares the memory of `value` where it has any. Numbers and lists become new
    arrays."""
    if type(value) is np.ndarray:
        return value
    if hasattr(value, "__cuda_array_interface__"):
        return DeviceArray.of(value)
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array_interface__"):
        device = value.__dlpack_device__()[0]
        if device not in (1, 3):  # kDLCPU, kDLCUDAHost
            raise TypeError(f"an array on device kind {device} of DLPack, neither in host memory "
                            "nor with __cuda_array_interface__")
        return np.from_dlpack(value)
    return np.asarray(value)


def _on_gpu(array: DeviceArray) -> Buffer:
    # numpy has no bfloat16: those who have write it as two bytes without a meaning.
    dtype = _abi.DTYPE_BF16 if array.dtype.str[1:] == "V2" else dtype_number(array.dtype)
    return Buffer(array.pointer, array.shape, dtype, _abi.DEVICE_CUDA, array.stream)


def readable(array: np.ndarray | DeviceArray) -> Buffer:
    """The memory of an input. TypeError for its type, ValueError when it is not contiguous."""
    if type(array) is DeviceArray:
        return _on_gpu(array)
    if not array.flags.c_contiguous:
        raise ValueError(f"an array of shape {array.shape} with strides {array.strides} is not "
                         "contiguous: pass numpy.ascontiguousarray(x)")
    return Buffer(array.__array_interface__["data"][0], array.shape, dtype_number(array.dtype))


def writable(array: Any) -> Buffer:
    """The memory of an output, which must be an array of the caller's that can be written to."""
    if not isinstance(array, np.ndarray):
        shared = as_array(array)
        if type(shared) is DeviceArray:
            if shared.read_only:
                raise ValueError("an output that is read-only")
            return _on_gpu(shared)
        if not (hasattr(array, "__array_interface__") or hasattr(array, "__dlpack__")
                or hasattr(array, "__array__")):
            raise TypeError(f"an output must be an array, not {type(array).__name__}")
        array = shared
    if not array.flags.c_contiguous:
        raise ValueError(f"an output of shape {array.shape} with strides {array.strides} is not "
                         "contiguous: the result would not reach it")
    if not array.flags.writeable:
        raise ValueError("an output that is read-only")
    return Buffer(array.__array_interface__["data"][0], array.shape, dtype_number(array.dtype))


class _Numpy(Framework):
    """numpy's arrays, and all that is in the memory of a GPU and has __cuda_array_interface__."""

    accept = staticmethod(as_array)
    readable = staticmethod(readable)
    writable = staticmethod(writable)

    def new(self, shape: Sequence[int], like: Any) -> np.ndarray | DeviceArray:
        if type(like) is DeviceArray:
            made = memory.empty(shape, like.dtype, device="cuda")
            made.stream = like.stream
            return made
        return np.empty(shape, like.dtype)

    def lent(self, address: int | None, shape: Sequence[int], like: DeviceArray,
             held: Held) -> DeviceArray:
        return DeviceArray(address or 0, tuple(shape), like.dtype, held.lend(), like.stream)

    def leading(self, out: Any, shape: Sequence[int]) -> Any:
        if isinstance(out, np.ndarray):
            return super().leading(out, shape)
        shared = as_array(out)
        return shared.first(tuple(shape)) if type(shared) is DeviceArray \
            else super().leading(out, shape)


NUMPY = _Numpy()
