"""What gradients look like while they travel: Compression.none, .fp16 and .bf16.

The library adds 16-bit values in 32 bits and rounds once, so only the inputs and the result lose
digits."""
from __future__ import annotations

from typing import Any

import torch


class Compressor:
    """Interface of a compression: two static methods, of which the first gives the context that
    the second needs."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """The tensor that is sent, and the context."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:
        """The result in the form of the tensor that was compressed."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Tensors travel as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:
        return tensor


class _CastCompressor(Compressor):
    """Floating-point tensors travel as another type; others as they are."""

    dtype: torch.dtype

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        if not tensor.dtype.is_floating_point:
            return tensor, tensor.dtype
        return tensor.to(cls.dtype), tensor.dtype

    @classmethod
    def decompress(cls, tensor: torch.Tensor, context: Any) -> torch.Tensor:
        return tensor.to(context) if context.is_floating_point else tensor


class FP16Compressor(_CastCompressor):
    """As IEEE binary16: 11 bits of precision, up to 65504."""
    dtype = torch.float16


class BF16Compressor(_CastCompressor):
    """As bfloat16: 8 bits of precision, the range of float32."""
    dtype = torch.bfloat16


class Compression:
    """The compressions by name."""
    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
