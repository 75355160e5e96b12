"""Tensors in the library's memory."""
from __future__ import annotations

from typing import Sequence

import torch

import dtrain.memory

# numpy has no bfloat16: such tensors are made of 16-bit integers and looked at differently.
_NUMPY = {torch.bfloat16: "int16"}


def empty(shape: Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A new tensor of zeros in the library's memory, which the other ranks of a node reduce where
    it lies. It must not be touched after dtrain.shutdown()."""
    name = _NUMPY.get(dtype, str(dtype).removeprefix("torch."))
    return torch.from_numpy(dtrain.memory.empty(tuple(shape), name)).view(dtype)
