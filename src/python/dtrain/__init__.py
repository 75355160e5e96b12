"""dtrain: data-parallel training over libdtrain, for numpy and (dtrain.torch) PyTorch.

    import dtrain, numpy as np
    dtrain.init()
    total = dtrain.allreduce(np.ones(4, np.float32), op=dtrain.Sum)

Started as it is, a program is a world of one rank; with `mpirun -np N python program.py` of N.
"""
from dtrain.errors import (Aborted, AlreadyInitialized, ConfigError, DuplicateName, Error, Forked,
                           InvalidArgument, Mismatch, NotInitialized, RankLost, ShutDown, Status,
                           Timeout, Unsupported, WorldLost)
from dtrain._submit import Group, Handle
from dtrain.device import DeviceArray, cuda_device
from dtrain.memory import empty
from dtrain.objects import allgather_object, broadcast_object
from dtrain.operations import (Adasum, Average, Max, Min, Op, Product, Sum, allgather,
                               allgather_async, allreduce, allreduce_async, alltoall,
                               alltoall_async, barrier, barrier_async, broadcast, broadcast_async,
                               broadcast_parameters, gather, gather_async, grouped_allgather,
                               grouped_allgather_async, grouped_allreduce, grouped_allreduce_async,
                               grouped_reducescatter, grouped_reducescatter_async, join,
                               join_async, poll, recv, recv_async, reduce, reduce_async,
                               reducescatter, reducescatter_async, scatter, scatter_async, send,
                               send_async, sparse_allreduce, sparse_allreduce_async, wait)
from dtrain.optimizer import Optimizer
from dtrain.process_sets import ProcessSet, add_process_set, remove_process_set, world
from dtrain.sampler import Batch, Sampler
from dtrain.agree import agree_stop, check_equal
from dtrain.flight import flight_dump, write_timeline
from dtrain.gradients import GradientSet
from dtrain.launch import RunError, run
from dtrain.lifecycle import (abort, built, cross_rank, cross_size, init, is_homogeneous,
                          is_initialized, local_rank, local_size, rank, set_log, shutdown, size,
                          version)

__all__ = [name for name in dir() if not name.startswith("_")]
