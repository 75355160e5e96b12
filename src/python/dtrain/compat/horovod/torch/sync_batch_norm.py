"""Horovod's SyncBatchNorm, which here takes tensors in host memory too."""
from dtrain.torch.sync_batch_norm import SyncBatchNorm

__all__ = ["SyncBatchNorm"]
