"""Where a tensor's elements lie, in which stream they come to be, and the library's numbers of
torch's types. What torch's CUDA is asked is asked here."""
from __future__ import annotations

from typing import Any, Sequence

import numpy as np
import torch

from dtrain import _abi
from dtrain._starting import Framework
from dtrain._submit import Buffer, Group, Handle, Held
from dtrain.device import DEFAULT_STREAM, DeviceArray, cuda_device

_TYPES = {
    torch.uint8: _abi.DTYPE_U8, torch.int8: _abi.DTYPE_I8, torch.int16: _abi.DTYPE_I16,
    torch.int32: _abi.DTYPE_I32, torch.int64: _abi.DTYPE_I64, torch.float16: _abi.DTYPE_F16,
    torch.float32: _abi.DTYPE_F32, torch.float64: _abi.DTYPE_F64,
    torch.bfloat16: _abi.DTYPE_BF16, torch.bool: _abi.DTYPE_BOOL,
}


def library_type(dtype: torch.dtype) -> int:
    """The library's number of a type; TypeError when it has none."""
    number = _TYPES.get(dtype)
    if number is None:
        raise TypeError(f"tensors of {dtype} cannot be sent")
    return number


def numpy_name(dtype: torch.dtype) -> str:
    """The numpy type of as many bytes: numpy has no bfloat16, so such a tensor is an int16 one that
    is looked at differently."""
    return "int16" if dtype is torch.bfloat16 else str(dtype).removeprefix("torch.")


def current_stream(device: torch.device | None = None) -> int:
    """The address of the stream that torch works in now, on a GPU; None: the one of this rank."""
    if device is None:
        device = torch.device("cuda", cuda_device())
    return torch.cuda.current_stream(device).cuda_stream or DEFAULT_STREAM


def complete(handle: Handle | Group) -> Any:
    """The result of an operation, for use in torch's current stream, which waits for the GPU; in
    host memory once it is done."""
    return handle.stream_wait(current_stream()) if handle.is_on_gpu() else handle.wait()


def buffer(tensor: torch.Tensor) -> Buffer:
    """The memory of a dense tensor. TypeError for its type or place, ValueError when it is not
    contiguous: a copy would leave the result where nobody looks."""
    dtype = library_type(tensor.dtype)
    if tensor.layout is not torch.strided:
        raise TypeError(f"a {tensor.layout} tensor: use sparse_allreduce_async or to_dense()")
    if tensor.device.type not in ("cpu", "cuda"):
        raise TypeError(f"a tensor on {tensor.device}, neither in host memory nor on CUDA")
    if not tensor.is_contiguous():
        raise ValueError(f"a tensor of shape {tuple(tensor.shape)} with strides {tensor.stride()} "
                         "is not contiguous: pass x.contiguous()")
    if tensor.device.type == "cpu":
        return Buffer(tensor.data_ptr(), tuple(tensor.shape), dtype)
    return Buffer(tensor.data_ptr(), tuple(tensor.shape), dtype, _abi.DEVICE_CUDA,
                  current_stream(tensor.device))


def from_array(array: np.ndarray | DeviceArray, dtype: torch.dtype) -> torch.Tensor:
    """A tensor that shares an array's memory, and keeps it. `dtype` has as many bytes as the
    array's."""
    if isinstance(array, np.ndarray):
        return torch.from_numpy(array).view(dtype)
    device = torch.device("cuda", cuda_device())
    if array.size == 0:
        return torch.empty(array.shape, dtype=dtype, device=device)
    return torch.as_tensor(array, device=device).view(dtype)


class _Torch(Framework):
    """torch's tensors."""

    readable = writable = staticmethod(buffer)

    def new(self, shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
        return torch.empty(shape, dtype=like.dtype, device=like.device)

    def lent(self, address: int | None, shape: Sequence[int], like: torch.Tensor,
             held: Held) -> torch.Tensor:
        dtype = np.dtype(numpy_name(like.dtype))
        return from_array(DeviceArray(address or 0, tuple(shape), dtype, held.lend()),
                          like.dtype)


TORCH = _Torch()
