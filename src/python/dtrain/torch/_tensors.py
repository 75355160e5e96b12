"""Where a tensor's elements lie, and the library's numbers of torch's types."""
from __future__ import annotations

from typing import Sequence

import torch

from dtrain import _abi
from dtrain._starting import Framework
from dtrain._submit import Buffer

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


def buffer(tensor: torch.Tensor) -> Buffer:
    """The memory of a dense tensor on the CPU. TypeError for its type or place, ValueError when it
    is not contiguous: a copy would leave the result where nobody looks."""
    dtype = library_type(tensor.dtype)
    if tensor.layout is not torch.strided:
        raise TypeError(f"a {tensor.layout} tensor: use sparse_allreduce_async or to_dense()")
    if tensor.device.type != "cpu":
        raise TypeError(f"a tensor on {tensor.device}, not in host memory")
    if not tensor.is_contiguous():
        raise ValueError(f"a tensor of shape {tuple(tensor.shape)} with strides {tensor.stride()} "
                         "is not contiguous: pass x.contiguous()")
    return Buffer(tensor.data_ptr(), tuple(tensor.shape), dtype)


class _Torch(Framework):
    """torch's tensors."""

    readable = writable = staticmethod(buffer)

    def new(self, shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
        return torch.empty(shape, dtype=like.dtype)


TORCH = _Torch()
