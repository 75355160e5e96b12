"""Tensors in the library's memory."""
from __future__ import annotations

from typing import Sequence

import torch

import dtrain.memory
from dtrain.torch._tensors import from_array, numpy_name


def empty(shape: Sequence[int], dtype: torch.dtype = torch.float32,
          device: str = "cpu") -> torch.Tensor:
    """A new tensor of zeros in the library's memory, which the other ranks of a node reduce where
    it lies; with device="cuda" in that of this rank's GPU. It must not be touched after
    dtrain.shutdown()."""
    return from_array(dtrain.memory.empty(tuple(shape), numpy_name(dtype), device), dtype)
