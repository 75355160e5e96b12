"""Collectives on torch tensors that autograd does not see: those that return handles, and those that
replace their tensor. See dtrain.torch.operations."""
from __future__ import annotations

import math
from typing import Any, Callable, Sequence

import torch

from dtrain._library import lib
from dtrain._starting import Call, Part, split_counts, start, start_group
from dtrain._submit import Group, Handle
from dtrain.process_sets import ProcessSet, world
from dtrain.reductions import Average
from dtrain.torch._tensors import TORCH

# Sparse tensors are made of what the library has checked; torch 2 warns unless it is told so, and
# 1.13 knows no such argument.
_UNCHECKED = {} if torch.__version__.startswith("1.") else {"check_invariants": False}
_Place = Callable[[torch.Tensor], torch.Tensor]


def _new_like(tensor: torch.Tensor) -> torch.Tensor:
    """The place of a result that is a new tensor."""
    return TORCH.new(tensor.shape, tensor)


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    """The place of a result that replaces its input."""
    return tensor


def allreduce_async(tensor: torch.Tensor, name: str | None = None, op: int = Average, *,
                    prescale: float = 1.0, postscale: float = 1.0, process_set: ProcessSet = world,
                    priority: int = 0, timeout: float | None = None, codec: str | None = None,
                    _place: _Place = _new_like, _blocking: bool = False) -> Handle:
    """Submits an allreduce; the handle's result is a new tensor."""
    return start(lib.dtrain_allreduce_async, Call("allreduce", name, process_set, _blocking),
                 lambda name: TORCH.placed(name, tensor, _place), op=op, prescale=prescale,
                 postscale=postscale, priority=priority, timeout=timeout, codec=codec)


def allreduce_async_(tensor: torch.Tensor, name: str | None = None, op: int = Average,
                     **options: Any) -> Handle:
    """Submits an allreduce in place; the handle's result is `tensor`."""
    return allreduce_async(tensor, name, op, _place=_itself, **options)


def allreduce_(tensor: torch.Tensor, name: str | None = None, op: int = Average,
               **options: Any) -> torch.Tensor:
    """Replaces `tensor` by the reduction of all ranks' tensors, and returns it."""
    return allreduce_async_(tensor, name, op, _blocking=True, **options).complete()


def grouped_allreduce_async(tensors: Sequence[torch.Tensor], name: str | None = None,
                            op: int = Average, *, prescale: float = 1.0, postscale: float = 1.0,
                            process_set: ProcessSet = world, priority: int = 0,
                            timeout: float | None = None, codec: str | None = None,
                            _place: _Place = _new_like) -> Group:
    """Submits allreduces as one group: all are agreed on before the first begins."""
    tensors = list(tensors)
    return start_group(lib.dtrain_grouped_allreduce_async,
                       Call("grouped_allreduce", name, process_set, members=len(tensors)),
                       lambda name, i: TORCH.placed(name, tensors[i], _place), op=op,
                       prescale=prescale, postscale=postscale, priority=priority, timeout=timeout,
                       codec=codec)


def grouped_allreduce_async_(tensors: Sequence[torch.Tensor], name: str | None = None,
                             op: int = Average, **options: Any) -> Group:
    """The same in place."""
    return grouped_allreduce_async(tensors, name, op, _place=_itself, **options)


def grouped_allreduce_(tensors: Sequence[torch.Tensor], name: str | None = None, op: int = Average,
                       **options: Any) -> list[torch.Tensor]:
    """Replaces each tensor by its reduction."""
    return grouped_allreduce_async_(tensors, name, op, **options).complete()


def sparse_allreduce_async(tensor: torch.Tensor, name: str | None = None, op: int = Average, *,
                           process_set: ProcessSet = world, priority: int = 0,
                           timeout: float | None = None) -> Handle:
    """Submits the allreduce of a sparse COO tensor; op is Sum or Average. The handle's result is a
    coalesced one with the entries that any rank had. A rank may have none."""
    def make(name: str) -> Part:
        sparse_dims, size = tensor.sparse_dim(), tensor.size()
        outer = tuple(size[:sparse_dims])

        def result(numbers: torch.Tensor | None, rows: torch.Tensor) -> torch.Tensor:
            if numbers is None:
                numbers = torch.arange(len(rows))
            indices = torch.stack(_denumbered(numbers, outer)).to(tensor.device)
            rows = rows.to(tensor.device)
            return torch.sparse_coo_tensor(indices, rows, size, **_UNCHECKED)._coalesced_(True)

        # To the library a tensor has one dimension of rows: several are numbered through.
        # It travels through host memory.
        return TORCH.sparse(name, math.prod(outer), _numbered(tensor._indices().cpu(), outer),
                            tensor._values().detach().cpu().contiguous(), result)

    return start(lib.dtrain_sparse_allreduce_async, Call("sparse_allreduce", name, process_set),
                 make, op=op, priority=priority, timeout=timeout)


def _numbered(indices: torch.Tensor, outer: tuple[int, ...]) -> torch.Tensor:
    """Indices in several dimensions, one column an entry, as row numbers of the flattened ones."""
    rows = torch.zeros(indices.shape[1], dtype=torch.int64)
    for index, extent in zip(indices, outer):
        rows = rows * extent + index
    return rows.contiguous()


def _denumbered(rows: torch.Tensor, outer: tuple[int, ...]) -> list[torch.Tensor]:
    """The other way round."""
    found = []
    for extent in reversed(outer):
        found.append(rows % extent)
        rows = rows // extent
    return found[::-1]


def reducescatter_async(tensor: torch.Tensor, name: str | None = None, op: int = Average, *,
                        prescale: float = 1.0, postscale: float = 1.0,
                        process_set: ProcessSet = world, priority: int = 0,
                        timeout: float | None = None, _blocking: bool = False) -> Handle:
    """Submits a reduce-scatter; the handle's result is as reducescatter's."""
    return start(lib.dtrain_reducescatter_async,
                 Call("reducescatter", name, process_set, _blocking),
                 lambda name: TORCH.placed(name, tensor, lambda x: TORCH.share(x, process_set)),
                 op=op, prescale=prescale, postscale=postscale, priority=priority, timeout=timeout)


def grouped_reducescatter_async(tensors: Sequence[torch.Tensor], name: str | None = None,
                                op: int = Average, *, prescale: float = 1.0,
                                postscale: float = 1.0, process_set: ProcessSet = world,
                                priority: int = 0, timeout: float | None = None) -> Group:
    """Submits reduce-scatters as one group."""
    tensors = list(tensors)
    return start_group(lib.dtrain_grouped_reducescatter_async,
                       Call("grouped_reducescatter", name, process_set, members=len(tensors)),
                       lambda name, i: TORCH.placed(name, tensors[i],
                                                    lambda x: TORCH.share(x, process_set)),
                       op=op, prescale=prescale, postscale=postscale, priority=priority,
                       timeout=timeout)


def allgather_async(tensor: torch.Tensor, name: str | None = None, *,
                    process_set: ProcessSet = world, priority: int = 0,
                    timeout: float | None = None, _blocking: bool = False) -> Handle:
    """Submits an allgather; the handle's result is as allgather's."""
    return start(lib.dtrain_allgather_async, Call("allgather", name, process_set, _blocking),
                 lambda name: TORCH.gathered(name, tensor), priority=priority, timeout=timeout)


def grouped_allgather_async(tensors: Sequence[torch.Tensor], name: str | None = None, *,
                            process_set: ProcessSet = world, priority: int = 0,
                            timeout: float | None = None) -> Group:
    """Submits allgathers as one group."""
    tensors = list(tensors)
    return start_group(lib.dtrain_grouped_allgather_async,
                       Call("grouped_allgather", name, process_set, members=len(tensors)),
                       lambda name, i: TORCH.gathered(name, tensors[i]), priority=priority,
                       timeout=timeout)


def broadcast_async(tensor: torch.Tensor, root: int, name: str | None = None, *,
                    process_set: ProcessSet = world, priority: int = 0,
                    timeout: float | None = None,
                    _place: _Place = _new_like,
                    _blocking: bool = False) -> Handle:
    """Submits a broadcast; the handle's result is a new tensor."""
    return start(lib.dtrain_broadcast_async, Call("broadcast", name, process_set, _blocking),
                 lambda name: TORCH.placed(name, tensor, _place), root, priority=priority,
                 timeout=timeout)


def broadcast_async_(tensor: torch.Tensor, root: int, name: str | None = None,
                     **options: Any) -> Handle:
    """The same in place; the handle's result is `tensor`."""
    return broadcast_async(tensor, root, name, _place=_itself, **options)


def broadcast_(tensor: torch.Tensor, root: int, name: str | None = None,
               **options: Any) -> torch.Tensor:
    """Replaces `tensor` by rank `root`'s, and returns it."""
    return broadcast_async_(tensor, root, name, _blocking=True, **options).complete()


def alltoall_async(tensor: torch.Tensor, splits: Sequence[int] | torch.Tensor | None = None,
                   name: str | None = None, *, process_set: ProcessSet = world, priority: int = 0,
                   timeout: float | None = None, _blocking: bool = False) -> Handle:
    """Submits an all-to-all; the handle's result is as alltoall's."""
    dtype = splits.dtype if isinstance(splits, torch.Tensor) else torch.int32
    call = Call("alltoall", name, process_set, _blocking)
    with call:
        counts = split_counts(splits)
    return start(lib.dtrain_alltoall_async, call,
                 lambda name: TORCH.swapped(name, tensor, process_set, None,
                                            lambda rows: torch.tensor(rows, dtype=dtype)),
                 counts, 0 if counts is None else len(counts), priority=priority, timeout=timeout)
