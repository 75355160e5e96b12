"""Tensors in the library's memory."""
from __future__ import annotations

from typing import Sequence

import torch

import dtrain.memory
from dtrain.torch._tensors import numpy_name


def empty(shape: Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A new tensor of zeros in the library's memory, which the other ranks of a node reduce where
    it lies. It must not be touched after dtrain.shutdown()."""
    return torch.from_numpy(dtrain.memory.empty(tuple(shape), numpy_name(dtype))).view(dtype)
