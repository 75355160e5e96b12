"""Horovod's operations on tensors: its arguments and defaults, on dtrain.torch."""
from __future__ import annotations

import warnings
from typing import Any, Sequence

import torch

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

__all__ = [name for name in dir() if not name.startswith("_") and name not in (
    "annotations", "warnings", "Any", "Sequence", "torch", "dt")]


def _public(function: Any) -> Any:
    __all__.append(function.__name__)
    return function


def _op(op: Any, average: bool | None) -> Any:
    """The reduction, of Horovod's old `average` or its successor."""
    if op is not None and average is not None:
        raise ValueError("op and average are two ways to say one thing: give op alone")
    if average is None:
        return Average if op is None else op
    warnings.warn("average=… is now op=hvd.Average or op=hvd.Sum", DeprecationWarning,
                  stacklevel=3)
    return Average if average else Sum


def _scales(prescale_factor: float, postscale_factor: float,
            process_set: ProcessSet) -> dict[str, Any]:
    return {"prescale": prescale_factor, "postscale": postscale_factor, "process_set": process_set}


@_public
def allreduce_async(tensor, average=None, name=None, op=None, prescale_factor=1.0,
                    postscale_factor=1.0, process_set=global_process_set):
    """Submits an allreduce; synchronize(handle) gives a new tensor."""
    return dt.allreduce_async(tensor, name, _op(op, average),
                              **_scales(prescale_factor, postscale_factor, process_set))


@_public
def allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0,
                     postscale_factor=1.0, process_set=global_process_set):
    """Submits an allreduce in place."""
    return dt.allreduce_async_(tensor, name, _op(op, average),
                               **_scales(prescale_factor, postscale_factor, process_set))


@_public
def allreduce(tensor, average=None, name=None, compression=Compression.none, op=None,
              prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """The reduction of all ranks' tensors."""
    return dt.allreduce(tensor, name, _op(op, average), compression=compression,
                        **_scales(prescale_factor, postscale_factor, process_set))


@_public
def allreduce_(tensor, average=None, name=None, op=None, prescale_factor=1.0,
               postscale_factor=1.0, process_set=global_process_set):
    """Replaces a tensor by its reduction."""
    return dt.allreduce_(tensor, name, _op(op, average),
                         **_scales(prescale_factor, postscale_factor, process_set))


@_public
def grouped_allreduce_async(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                            postscale_factor=1.0, process_set=global_process_set):
    """Submits allreduces as one group."""
    return dt.grouped_allreduce_async(tensors, name, _op(op, average),
                                      **_scales(prescale_factor, postscale_factor, process_set))


@_public
def grouped_allreduce_async_(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                             postscale_factor=1.0, process_set=global_process_set):
    """Submits allreduces in place as one group."""
    return dt.grouped_allreduce_async_(tensors, name, _op(op, average),
                                       **_scales(prescale_factor, postscale_factor, process_set))


@_public
def grouped_allreduce(tensors, average=None, name=None, compression=Compression.none, op=None,
                      prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """The reductions of several tensors, as one group."""
    return dt.grouped_allreduce(tensors, name, _op(op, average), compression=compression,
                                **_scales(prescale_factor, postscale_factor, process_set))


@_public
def grouped_allreduce_(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                       postscale_factor=1.0, process_set=global_process_set):
    """Replaces each tensor by its reduction."""
    return dt.grouped_allreduce_(tensors, name, _op(op, average),
                                 **_scales(prescale_factor, postscale_factor, process_set))


@_public
def sparse_allreduce_async(tensor, name, op, process_set=global_process_set):
    """Submits the allreduce of a sparse tensor; calling the handle gives the result."""
    return dt.sparse_allreduce_async(tensor, name, op, process_set=process_set).wait


@_public
def allgather_async(tensor, name=None, process_set=global_process_set):
    """Submits an allgather."""
    return dt.allgather_async(tensor, name, process_set=process_set)


@_public
def allgather(tensor, name=None, process_set=global_process_set):
    """The rows of all ranks' tensors in rank order."""
    return dt.allgather(tensor, name, process_set=process_set)


@_public
def grouped_allgather_async(tensors, name=None, process_set=global_process_set):
    """Submits allgathers as one group."""
    return dt.grouped_allgather_async(tensors, name, process_set=process_set)


@_public
def grouped_allgather(tensors, name=None, process_set=global_process_set):
    """The gathered rows of several tensors."""
    return dt.grouped_allgather(tensors, name, process_set=process_set)


@_public
def broadcast_async(tensor, root_rank, name=None, process_set=global_process_set):
    """Submits a broadcast."""
    return dt.broadcast_async(tensor, root_rank, name, process_set=process_set)


@_public
def broadcast_async_(tensor, root_rank, name=None, process_set=global_process_set):
    """Submits a broadcast in place."""
    return dt.broadcast_async_(tensor, root_rank, name, process_set=process_set)


@_public
def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """The root's tensor, on every rank."""
    return dt.broadcast(tensor, root_rank, name, process_set=process_set)


@_public
def broadcast_(tensor, root_rank, name=None, process_set=global_process_set):
    """Replaces a tensor by the root's."""
    return dt.broadcast_(tensor, root_rank, name, process_set=process_set)


@_public
def alltoall_async(tensor, splits=None, name=None, process_set=global_process_set):
    """Submits an all-to-all; synchronize(handle) gives the result and the splits received."""
    return dt.alltoall_async(tensor, splits, name, process_set=process_set)


@_public
def alltoall(tensor, splits=None, name=None, process_set=global_process_set):
    """What came from all ranks; with `splits` also how many rows came from each."""
    result, received = dt.alltoall(tensor, splits, name, process_set=process_set)
    return result if splits is None else (result, received)


@_public
def reducescatter_async(tensor, name=None, op=Average, process_set=global_process_set,
                        prescale_factor=1.0, postscale_factor=1.0):
    """Submits a reduce-scatter."""
    return dt.reducescatter_async(tensor, name, op,
                                  **_scales(prescale_factor, postscale_factor, process_set))


@_public
def reducescatter(tensor, name=None, compression=Compression.none, op=Average,
                  process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    """This rank's rows of the reduction."""
    return dt.reducescatter(tensor, name, op, compression=compression,
                            **_scales(prescale_factor, postscale_factor, process_set))


@_public
def grouped_reducescatter_async(tensors, name=None, op=Average, process_set=global_process_set,
                                prescale_factor=1.0, postscale_factor=1.0):
    """Submits reduce-scatters as one group."""
    return dt.grouped_reducescatter_async(
        tensors, name, op, **_scales(prescale_factor, postscale_factor, process_set))


@_public
def grouped_reducescatter(tensors, name=None, compression=Compression.none, op=Average,
                          process_set=global_process_set, prescale_factor=1.0,
                          postscale_factor=1.0):
    """This rank's rows of several tensors' reductions."""
    return dt.grouped_reducescatter(tensors, name, op, compression=compression,
                                    **_scales(prescale_factor, postscale_factor, process_set))


@_public
def join(device: int = -1) -> int:
    """Says that this rank has no more data; returns the rank that joined last. `device` is where
    Horovod would make its zeros."""
    return dt.join()


@_public
def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until every rank of the set is here."""
    dt.barrier(process_set=process_set)
