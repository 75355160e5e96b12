"""dtrain for PyTorch: collectives on tensors, and what a training loop needs of them.

    import torch, dtrain.torch as dt
    dt.init()
    optimizer = dt.DistributedOptimizer(optimizer, model.named_parameters())
    dt.broadcast_parameters(model.state_dict())
    dt.broadcast_optimizer_state(optimizer)
"""
import torch.distributed

from dtrain import (Adasum, Average, Max, Min, ProcessSet, Product, Sum, abort, add_process_set,
                    agree_stop, barrier, built, cross_rank, cross_size, init, is_homogeneous,
                    is_initialized, join, local_rank, local_size, rank, remove_process_set,
                    shutdown, size, world)
from dtrain.torch import elastic
from dtrain.torch.compression import Compression
from dtrain.torch.functions import (allgather_object, broadcast_object, broadcast_optimizer_state,
                                    broadcast_parameters, check_equal)
from dtrain.torch.library_optimizer import Optimizer
from dtrain.torch.memory import empty
from dtrain.torch.operations import (allgather, allgather_async, allreduce, allreduce_,
                                     allreduce_async, allreduce_async_, alltoall, alltoall_async,
                                     broadcast, broadcast_, broadcast_async, broadcast_async_,
                                     grouped_allgather, grouped_allgather_async, grouped_allreduce,
                                     grouped_allreduce_, grouped_allreduce_async,
                                     grouped_allreduce_async_, grouped_reducescatter,
                                     grouped_reducescatter_async, poll, reducescatter,
                                     reducescatter_async, sparse_allreduce_async, synchronize)
from dtrain.torch.optimizer import DistributedOptimizer
from dtrain.torch.sampler import ElasticSampler
from dtrain.torch.sync_batch_norm import SyncBatchNorm

if torch.distributed.is_available():
    from dtrain.torch import ddp

__all__ = [name for name in dir() if not name.startswith("_")]
