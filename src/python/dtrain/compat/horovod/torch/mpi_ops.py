"""Horovod's operations on tensors: its arguments and defaults, on dtrain.torch."""
from __future__ import annotations

import inspect
import warnings
from typing import Any, Callable

import dtrain.torch as dt
from dtrain.torch import Adasum, Average, Max, Min, Product, Sum, poll, synchronize
from horovod.common.basics import (ccl_built, cross_rank, cross_size, cuda_built, ddl_built,
                                   gloo_built, gloo_enabled, init, is_homogeneous, is_initialized,
                                   local_rank, local_size, mpi_built, mpi_enabled,
                                   mpi_threads_supported, nccl_built, rank, rocm_built, shutdown,
                                   size, start_timeline, stop_timeline)
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import (ProcessSet, add_process_set, global_process_set,
                                         remove_process_set)
from horovod.torch.compression import Compression

# Horovod's parameters, behind the tensor or tensors, by the kind of operation.
_REDUCTION = "average name op prescale_factor postscale_factor process_set"
_COMPRESSED = "average name compression op prescale_factor postscale_factor process_set"
_ROWS = "name process_set"
_BROADCAST = "root_rank name process_set"
_SHARE = "name op process_set prescale_factor postscale_factor"
_COMPRESSED_SHARE = "name compression op process_set prescale_factor postscale_factor"

_OPERATIONS = {
    "allreduce_async": ("tensor", _REDUCTION),
    "allreduce_async_": ("tensor", _REDUCTION),
    "allreduce": ("tensor", _COMPRESSED),
    "allreduce_": ("tensor", _REDUCTION),
    "grouped_allreduce_async": ("tensors", _REDUCTION),
    "grouped_allreduce_async_": ("tensors", _REDUCTION),
    "grouped_allreduce": ("tensors", _COMPRESSED),
    "grouped_allreduce_": ("tensors", _REDUCTION),
    "allgather_async": ("tensor", _ROWS),
    "allgather": ("tensor", _ROWS),
    "grouped_allgather_async": ("tensors", _ROWS),
    "grouped_allgather": ("tensors", _ROWS),
    "broadcast_async": ("tensor", _BROADCAST),
    "broadcast_async_": ("tensor", _BROADCAST),
    "broadcast": ("tensor", _BROADCAST),
    "broadcast_": ("tensor", _BROADCAST),
    "alltoall_async": ("tensor", "splits name process_set"),
    "reducescatter_async": ("tensor", _SHARE),
    "reducescatter": ("tensor", _COMPRESSED_SHARE),
    "grouped_reducescatter_async": ("tensors", _SHARE),
    "grouped_reducescatter": ("tensors", _COMPRESSED_SHARE),
}
_DEFAULTS = {"average": None, "name": None, "op": None, "prescale_factor": 1.0,
             "postscale_factor": 1.0, "process_set": global_process_set, "splits": None,
             "compression": Compression.none}
_HERE = {"root_rank": "root", "prescale_factor": "prescale", "postscale_factor": "postscale"}


def _op(op: Any, average: bool | None) -> Any:
    """The reduction, of Horovod's old `average` or its successor."""
    if op is not None and average is not None:
        raise ValueError("op and average are two ways to say one thing: give op alone")
    if average is None:
        return Average if op is None else op
    warnings.warn("average=… is now op=hvd.Average or op=hvd.Sum", DeprecationWarning,
                  stacklevel=3)
    return Average if average else Sum


def _operation(function: Callable[..., Any], first: str, others: str) -> Callable[..., Any]:
    """A function of dtrain.torch with Horovod's parameters."""
    names = others.split()
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD,
                                    default=_DEFAULTS.get(name, inspect.Parameter.empty))
                  for name in [first, *names]]
    signature = inspect.Signature(parameters)

    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        if "op" in given:
            given["op"] = _op(given["op"], given.pop("average", None))
        tensors = given.pop(first)
        return function(tensors, **{_HERE.get(name, name): value
                                    for name, value in given.items()})

    call.__name__ = call.__qualname__ = function.__name__
    call.__doc__, call.__signature__ = function.__doc__, signature
    return call


for _name, _parameters in _OPERATIONS.items():
    globals()[_name] = _operation(getattr(dt, _name), *_parameters)


def alltoall(tensor, splits=None, name=None, process_set=global_process_set):
    """What came from all ranks; with `splits` also how many rows came from each."""
    result, received = dt.alltoall(tensor, splits, name, process_set=process_set)
    return result if splits is None else (result, received)


def sparse_allreduce_async(tensor, name, op, process_set=global_process_set):
    """Submits the allreduce of a sparse tensor; calling the handle gives the result."""
    return dt.sparse_allreduce_async(tensor, name, op, process_set=process_set).wait


def join(device: int = -1) -> int:
    """Says that this rank has no more data; returns the rank that joined last. `device` is where
    Horovod would make its zeros."""
    return dt.join()


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until every rank of the set is here."""
    dt.barrier(process_set=process_set)


__all__ = [name for name in dir() if not name.startswith("_") and name not in (
    "annotations", "inspect", "warnings", "Any", "Callable", "dt")]
