"""Horovod's DistributedOptimizer."""
from __future__ import annotations

from typing import Any

import dtrain.torch as dt
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch.compression import Compression


def DistributedOptimizer(optimizer: Any, named_parameters: Any = None,
                         compression: type = Compression.none, backward_passes_per_step: int = 1,
                         op: int = dt.Average, gradient_predivide_factor: float = 1.0,
                         num_groups: int = 0, groups: Any = None, sparse_as_dense: bool = False,
                         process_set: ProcessSet = global_process_set) -> Any:
    """An optimizer that reduces gradients before each step; see dtrain.torch."""
    dtrain_set = dt.world if process_set is global_process_set else process_set
    wrapped = dt.DistributedOptimizer(
        optimizer, named_parameters, compression=compression,
        backward_passes_per_step=backward_passes_per_step, op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        groups=groups if groups is not None else num_groups or None,
        sparse_as_dense=sparse_as_dense, process_set=dtrain_set)
    wrapped._parameter_names = wrapped._reducer.names  # some programs look there
    return wrapped
