"""Horovod's compressions."""
from dtrain.torch.compression import (Compression, Compressor, FP16Compressor,
                                      NoneCompressor)

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]
