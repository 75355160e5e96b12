"""Collectives on torch tensors.

They take the arguments of dtrain's functions on numpy arrays, and are matched with them: what a
rank submits as an array another may submit as a tensor. Tensors are dense, contiguous and on the
CPU. Functions ending in an underscore work in place. Those without _async can be differentiated;
their gradients are collectives as well, so every rank must run the backward pass.
"""
from __future__ import annotations

import contextlib
import ctypes
import math
from typing import Any, Callable, Iterator, Sequence

import torch

from dtrain import _abi, _submit, errors
from dtrain._library import lib
from dtrain._submit import Group, Handle
from dtrain.operations import Average, Sum, library_output, received_splits, share_rows
from dtrain.process_sets import ProcessSet, world
from dtrain.torch._tensors import buffer
from dtrain.torch.compression import Compression
from dtrain.lifecycle import rank


# Sparse tensors are made of what the library has checked; torch 2 warns unless it is told so, and
# 1.13 knows no such argument.
_UNCHECKED = {} if torch.__version__.startswith("1.") else {"check_invariants": False}


@contextlib.contextmanager
def _told_to_others(name: str, process_set: ProcessSet) -> Iterator[None]:
    """What is wrong with an argument here fails the other ranks' operation too."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if not isinstance(error, errors.Error):
            _submit.refuse(name, process_set.id)
        raise


def _like(tensor: torch.Tensor, shape: Sequence[int] | None = None) -> torch.Tensor:
    return torch.empty(tensor.shape if shape is None else shape, dtype=tensor.dtype)


def _described(name: str, tensor: torch.Tensor, out: torch.Tensor | None) -> _abi.Tensor:
    source = buffer(tensor)
    target = buffer(out).pointer if out is not None else None
    return _submit.tensor(name, source.pointer, target, source.shape, source.dtype)


def _start(function: Callable[..., int], name: str, process_set: ProcessSet, tensor: torch.Tensor,
           out: Callable[[], torch.Tensor], opts: dict[str, Any], *extra: Any) -> Handle:
    """Submits an operation on one tensor, whose result is `out()`."""
    with _told_to_others(name, process_set):
        result = out()
        described = _described(name, tensor.detach(), result)
        options = _submit.options(pset=process_set.id, **opts)
    return _submit.submit(function, described, name, options, (tensor, result),
                          lambda handle: result, *extra)


def _start_group(function: Callable[..., int], kind: str, name: str | None, process_set: ProcessSet,
                 tensors: Sequence[torch.Tensor],
                 out: Callable[[torch.Tensor], torch.Tensor | None],
                 finish: Callable[[torch.Tensor, torch.Tensor | None], Callable[[int], Any]],
                 opts: dict[str, Any]) -> Group:
    """Submits operations on several tensors as one group."""
    base = _submit.name_of(kind, name)
    names = [f"{base}.{i}" for i in range(len(tensors))]
    with _told_to_others(base, process_set):
        results = [out(tensor) for tensor in tensors]
        described = [_described(*parts) for parts in
                     zip(names, [tensor.detach() for tensor in tensors], results)]
        options = _submit.options(pset=process_set.id, **opts)
    return _submit.submit_group(function, described, names, options, list(zip(tensors, results)),
                                [finish(*pair) for pair in zip(tensors, results)])


def _reduction(op: int, prescale: float, postscale: float, priority: int,
               timeout: float | None, codec: str | None = None) -> dict[str, Any]:
    return {"op": op, "prescale": prescale, "postscale": postscale, "priority": priority,
            "timeout": timeout, "codec": codec}


# ---- allreduce ------------------------------------------------------------------------------


def allreduce_async(tensor: torch.Tensor, name: str | None = None, op: int = Average, *,
                    prescale: float = 1.0, postscale: float = 1.0, process_set: ProcessSet = world,
                    priority: int = 0, timeout: float | None = None, codec: str | None = None,
                    _blocking: bool = False) -> Handle:
    """Submits an allreduce; the handle's result is a new tensor."""
    return _start(lib.dtrain_allreduce_async, _submit.name_of("allreduce", name, _blocking),
                  process_set, tensor, lambda: _like(tensor),
                  _reduction(op, prescale, postscale, priority, timeout, codec))


def allreduce_async_(tensor: torch.Tensor, name: str | None = None, op: int = Average, *,
                     prescale: float = 1.0, postscale: float = 1.0,
                     process_set: ProcessSet = world, priority: int = 0,
                     timeout: float | None = None, codec: str | None = None,
                     _blocking: bool = False) -> Handle:
    """Submits an allreduce in place; the handle's result is `tensor`."""
    return _start(lib.dtrain_allreduce_async, _submit.name_of("allreduce", name, _blocking),
                  process_set, tensor, lambda: tensor,
                  _reduction(op, prescale, postscale, priority, timeout, codec))


def allreduce_(tensor: torch.Tensor, name: str | None = None, op: int = Average,
               **options: Any) -> torch.Tensor:
    """Replaces `tensor` by the reduction of all ranks' tensors, and returns it."""
    return allreduce_async_(tensor, name, op, _blocking=True, **options).wait()


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, op, options):
        ctx.op, ctx.options = op, options
        return allreduce_async(tensor, name, op, _blocking=True, **options).wait()

    @staticmethod
    def backward(ctx, grad):
        return allreduce(grad.contiguous(), None, ctx.op, **ctx.options), None, None, None


def allreduce(tensor: torch.Tensor, name: str | None = None, op: int = Average, *,
              compression: type = Compression.none, **options: Any) -> torch.Tensor:
    """The reduction of all ranks' tensors: a new tensor of the same shape and type. The gradient is
    reduced likewise."""
    compressed, context = compression.compress(tensor)
    return compression.decompress(_Allreduce.apply(compressed, name, op, options), context)


def grouped_allreduce_async(tensors: Sequence[torch.Tensor], name: str | None = None,
                            op: int = Average, *, prescale: float = 1.0, postscale: float = 1.0,
                            process_set: ProcessSet = world, priority: int = 0,
                            timeout: float | None = None, codec: str | None = None) -> Group:
    """Submits allreduces as one group: all are agreed on before the first begins."""
    return _start_group(lib.dtrain_grouped_allreduce_async, "grouped_allreduce", name, process_set,
                        tensors, _like, _given,
                        _reduction(op, prescale, postscale, priority, timeout, codec))


def _given(tensor: torch.Tensor, result: torch.Tensor) -> Callable[[int], torch.Tensor]:
    return lambda handle: result


def grouped_allreduce_async_(tensors: Sequence[torch.Tensor], name: str | None = None,
                             op: int = Average, *, prescale: float = 1.0, postscale: float = 1.0,
                             process_set: ProcessSet = world, priority: int = 0,
                             timeout: float | None = None, codec: str | None = None) -> Group:
    """The same in place."""
    return _start_group(lib.dtrain_grouped_allreduce_async, "grouped_allreduce", name, process_set,
                        tensors, lambda tensor: tensor, _given,
                        _reduction(op, prescale, postscale, priority, timeout, codec))


def grouped_allreduce_(tensors: Sequence[torch.Tensor], name: str | None = None, op: int = Average,
                       **options: Any) -> list[torch.Tensor]:
    """Replaces each tensor by its reduction."""
    return grouped_allreduce_async_(tensors, name, op, **options).wait()


class _GroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, op, options, *tensors):
        ctx.op, ctx.options = op, options
        return tuple(grouped_allreduce_async(tensors, name, op, **options).wait())

    @staticmethod
    def backward(ctx, *grads):
        grads = [grad.contiguous() for grad in grads]
        return None, None, None, *grouped_allreduce(grads, None, ctx.op, **ctx.options)


def grouped_allreduce(tensors: Sequence[torch.Tensor], name: str | None = None, op: int = Average,
                      *, compression: type = Compression.none,
                      **options: Any) -> list[torch.Tensor]:
    """The reductions of several tensors, as one group: a list in the order of `tensors`."""
    pairs = [compression.compress(tensor) for tensor in tensors]
    results = _GroupedAllreduce.apply(name, op, options, *[tensor for tensor, _ in pairs])
    return [compression.decompress(result, context)
            for result, (_, context) in zip(results, pairs)]


def sparse_allreduce_async(tensor: torch.Tensor, name: str | None = None, op: int = Average, *,
                           process_set: ProcessSet = world, priority: int = 0,
                           timeout: float | None = None) -> Handle:
    """Submits the allreduce of a sparse COO tensor; op is Sum or Average. The handle's result is a
    coalesced one with the entries that any rank had. A rank may have none."""
    name = _submit.name_of("sparse_allreduce", name)
    sparse_dims, size = tensor.sparse_dim(), tensor.size()
    outer, inner = tuple(size[:sparse_dims]), tuple(size[sparse_dims:])
    with _told_to_others(name, process_set):
        # To the library a tensor has one dimension of rows: several are numbered through.
        rows = _numbered(tensor._indices(), outer)
        values = tensor._values().detach().contiguous()
        source = buffer(values)
        described = _submit.sparse(name, (math.prod(outer),) + inner, rows.data_ptr(),
                                   source.pointer, len(rows), source.dtype)
        options = _submit.options(op, pset=process_set.id, priority=priority, timeout=timeout)

    def finish(handle: int) -> torch.Tensor:
        where, what, nnz = _submit.sparse_output(handle)
        numbers = torch.arange(nnz) if where is None else torch.empty(nnz, dtype=torch.int64)
        if where is not None:
            ctypes.memmove(numbers.data_ptr(), where, 8 * nnz)
        result = torch.empty((nnz,) + inner, dtype=values.dtype)
        if result.numel():
            ctypes.memmove(result.data_ptr(), what, result.numel() * result.element_size())
        indices = torch.stack(_denumbered(numbers, outer))
        return torch.sparse_coo_tensor(indices, result, size, **_UNCHECKED)._coalesced_(True)

    return _submit.submit(lib.dtrain_sparse_allreduce_async, described, name, options,
                          (rows, values), finish)


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


# ---- allgather, gather ----------------------------------------------------------------------


def _copy_of_output(tensor: torch.Tensor) -> Callable[[int], torch.Tensor]:
    dtype = tensor.dtype

    def finish(handle: int) -> torch.Tensor:
        address, shape = library_output(handle)
        result = torch.empty(shape, dtype=dtype)
        if result.numel():
            ctypes.memmove(result.data_ptr(), address, result.numel() * result.element_size())
        return result

    return finish


def _start_gathering(function: Callable[..., int], name: str, process_set: ProcessSet,
                     tensor: torch.Tensor, finish: Callable[[int], Any], priority: int,
                     timeout: float | None, *extra: Any) -> Handle:
    """Submits an operation whose output's rows are known when it is done."""
    with _told_to_others(name, process_set):
        described = _described(name, tensor.detach(), None)
        options = _submit.options(pset=process_set.id, priority=priority, timeout=timeout)
    return _submit.submit(function, described, name, options, tensor, finish, *extra)


def allgather_async(tensor: torch.Tensor, name: str | None = None, *,
                    process_set: ProcessSet = world, priority: int = 0,
                    timeout: float | None = None, codec: str | None = None, _blocking: bool = False) -> Handle:
    """Submits an allgather; the handle's result is as allgather's."""
    return _start_gathering(lib.dtrain_allgather_async,
                            _submit.name_of("allgather", name, _blocking), process_set, tensor,
                            _copy_of_output(tensor), priority, timeout)


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, process_set):
        ctx.process_set = process_set
        ctx.rows = tensor.shape[0] if tensor.dim() else 0
        return allgather_async(tensor, name, process_set=process_set, _blocking=True).wait()

    @staticmethod
    def backward(ctx, grad):
        average = allreduce(grad.contiguous(), process_set=ctx.process_set)
        return _own_rows(average, ctx.rows, ctx.process_set), None, None


def _own_rows(whole: torch.Tensor, rows: int, process_set: ProcessSet) -> torch.Tensor:
    """This rank's part of a tensor to which each rank has given some rows."""
    all_rows = allgather(torch.tensor([rows]), process_set=process_set)
    return whole.narrow(0, int(all_rows[:process_set.rank()].sum()), rows)


def allgather(tensor: torch.Tensor, name: str | None = None, *,
              process_set: ProcessSet = world) -> torch.Tensor:
    """The rows of all ranks' tensors in rank order; the first extent may differ by rank. The
    gradient of this rank's rows is the average of all ranks'."""
    return _Allgather.apply(tensor, name, process_set)


def grouped_allgather_async(tensors: Sequence[torch.Tensor], name: str | None = None, *,
                            process_set: ProcessSet = world, priority: int = 0,
                            timeout: float | None = None) -> Group:
    """Submits allgathers as one group."""
    return _start_group(lib.dtrain_grouped_allgather_async, "grouped_allgather", name, process_set,
                        tensors, lambda tensor: None, lambda tensor, _: _copy_of_output(tensor),
                        {"priority": priority, "timeout": timeout})


class _GroupedAllgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, process_set, *tensors):
        ctx.process_set = process_set
        ctx.rows = [tensor.shape[0] if tensor.dim() else 0 for tensor in tensors]
        return tuple(grouped_allgather_async(tensors, name, process_set=process_set).wait())

    @staticmethod
    def backward(ctx, *grads):
        averages = grouped_allreduce([grad.contiguous() for grad in grads],
                                     process_set=ctx.process_set)
        return None, None, *[_own_rows(average, rows, ctx.process_set)
                             for average, rows in zip(averages, ctx.rows)]


def grouped_allgather(tensors: Sequence[torch.Tensor], name: str | None = None, *,
                      process_set: ProcessSet = world) -> list[torch.Tensor]:
    """The gathered rows of several tensors: a list in the order of `tensors`."""
    return list(_GroupedAllgather.apply(name, process_set, *tensors))


# ---- broadcast ------------------------------------------------------------------------------


def broadcast_async(tensor: torch.Tensor, root: int, name: str | None = None, *,
                    process_set: ProcessSet = world, priority: int = 0,
                    timeout: float | None = None, _blocking: bool = False) -> Handle:
    """Submits a broadcast; the handle's result is a new tensor."""
    return _start(lib.dtrain_broadcast_async, _submit.name_of("broadcast", name, _blocking),
                  process_set, tensor, lambda: _like(tensor),
                  {"priority": priority, "timeout": timeout}, root)


def broadcast_async_(tensor: torch.Tensor, root: int, name: str | None = None, *,
                     process_set: ProcessSet = world, priority: int = 0,
                     timeout: float | None = None, _blocking: bool = False) -> Handle:
    """The same in place; the handle's result is `tensor`."""
    return _start(lib.dtrain_broadcast_async, _submit.name_of("broadcast", name, _blocking),
                  process_set, tensor, lambda: tensor, {"priority": priority, "timeout": timeout},
                  root)


def broadcast_(tensor: torch.Tensor, root: int, name: str | None = None,
               **options: Any) -> torch.Tensor:
    """Replaces `tensor` by rank `root`'s, and returns it."""
    return broadcast_async_(tensor, root, name, _blocking=True, **options).wait()


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, root, name, process_set):
        ctx.root, ctx.process_set = root, process_set
        return broadcast_async(tensor, root, name, process_set=process_set, _blocking=True).wait()

    @staticmethod
    def backward(ctx, grad):
        average = allreduce(grad.contiguous(), process_set=ctx.process_set)
        return average if rank() == ctx.root else average * 0, None, None, None


def broadcast(tensor: torch.Tensor, root: int, name: str | None = None, *,
              process_set: ProcessSet = world) -> torch.Tensor:
    """Rank `root`'s tensor, on every rank. The root's gradient is the average of all ranks'."""
    return _Broadcast.apply(tensor, root, name, process_set)


# ---- alltoall -------------------------------------------------------------------------------


def alltoall_async(tensor: torch.Tensor, splits: Sequence[int] | torch.Tensor | None = None,
                   name: str | None = None, *, process_set: ProcessSet = world, priority: int = 0,
                   timeout: float | None = None, _blocking: bool = False) -> Handle:
    """Submits an all-to-all; the handle's result is as alltoall's."""
    name = _submit.name_of("alltoall", name, _blocking)
    copy = _copy_of_output(tensor)
    with _told_to_others(name, process_set):
        counts = None if splits is None else _split_counts(splits)
    n = process_set.size() if process_set.included() else 0
    split_dtype = splits.dtype if isinstance(splits, torch.Tensor) else torch.int32

    def finish(handle: int) -> tuple[torch.Tensor, torch.Tensor]:
        return copy(handle), torch.tensor(received_splits(handle, n), dtype=split_dtype)

    return _start_gathering(lib.dtrain_alltoall_async, name, process_set, tensor, finish, priority,
                            timeout, counts, 0 if counts is None else len(counts))


def _split_counts(splits: Sequence[int] | torch.Tensor) -> Any:
    if isinstance(splits, torch.Tensor):
        if splits.dtype.is_floating_point or splits.dim() != 1:
            raise ValueError(f"splits are {splits.dtype} of shape {tuple(splits.shape)}, not "
                             "integers in one dimension")
        splits = splits.tolist()
    return (ctypes.c_int64 * len(splits))(*splits)


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        ctx.process_set = process_set
        result, received = alltoall_async(tensor, splits, name, process_set=process_set,
                                          _blocking=True).wait()
        ctx.received = received
        ctx.mark_non_differentiable(received)
        return result, received

    @staticmethod
    def backward(ctx, grad, _):
        back, _ = alltoall(grad.contiguous(), ctx.received, process_set=ctx.process_set)
        return back, None, None, None


def alltoall(tensor: torch.Tensor, splits: Sequence[int] | torch.Tensor | None = None,
             name: str | None = None, *,
             process_set: ProcessSet = world) -> tuple[torch.Tensor, torch.Tensor]:
    """Sends splits[r] rows of `tensor` to rank r, behind those for lower ranks; returns what came
    from all ranks in rank order, and how many rows came from each. None: the same for each."""
    return _Alltoall.apply(tensor, splits, name, process_set)


# ---- reduce-scatter -------------------------------------------------------------------------


def _share(tensor: torch.Tensor, process_set: ProcessSet) -> torch.Tensor:
    """A tensor for this rank's rows."""
    # What has no rows is refused by the library.
    rows = (share_rows(tensor.shape[0], process_set.rank(), process_set.size())
            if tensor.dim() else 0)
    return _like(tensor, (rows,) + tuple(tensor.shape[1:]))


def reducescatter_async(tensor: torch.Tensor, name: str | None = None, op: int = Average, *,
                        prescale: float = 1.0, postscale: float = 1.0,
                        process_set: ProcessSet = world, priority: int = 0,
                        timeout: float | None = None, _blocking: bool = False) -> Handle:
    """Submits a reduce-scatter; the handle's result is as reducescatter's."""
    return _start(lib.dtrain_reducescatter_async, _submit.name_of("reducescatter", name, _blocking),
                  process_set, tensor, lambda: _share(tensor, process_set),
                  _reduction(op, prescale, postscale, priority, timeout))


def _scattered_grad(ctx, grad: torch.Tensor) -> torch.Tensor:
    """What this rank's rows of the result's gradient mean for all ranks' inputs."""
    factor = ctx.process_set.size() if ctx.op == Sum else 1
    factor *= ctx.options.get("prescale", 1.0) * ctx.options.get("postscale", 1.0)
    return (grad * factor if factor != 1 else grad).contiguous()


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, op, process_set, options):
        ctx.op, ctx.process_set, ctx.options = op, process_set, options
        return reducescatter_async(tensor, name, op, process_set=process_set, _blocking=True,
                                   **options).wait()

    @staticmethod
    def backward(ctx, grad):
        whole = allgather(_scattered_grad(ctx, grad), process_set=ctx.process_set)
        return whole, None, None, None, None


def reducescatter(tensor: torch.Tensor, name: str | None = None, op: int = Average, *,
                  compression: type = Compression.none, process_set: ProcessSet = world,
                  **options: Any) -> torch.Tensor:
    """This rank's rows of what allreduce gives. The gradient is gathered; for Sum it is multiplied
    by the number of ranks."""
    compressed, context = compression.compress(tensor)
    result = _Reducescatter.apply(compressed, name, op, process_set, options)
    return compression.decompress(result, context)


def grouped_reducescatter_async(tensors: Sequence[torch.Tensor], name: str | None = None,
                                op: int = Average, *, prescale: float = 1.0,
                                postscale: float = 1.0, process_set: ProcessSet = world,
                                priority: int = 0, timeout: float | None = None) -> Group:
    """Submits reduce-scatters as one group."""
    return _start_group(lib.dtrain_grouped_reducescatter_async, "grouped_reducescatter", name,
                        process_set, tensors, lambda tensor: _share(tensor, process_set), _given,
                        _reduction(op, prescale, postscale, priority, timeout))


class _GroupedReducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, op, process_set, options, *tensors):
        ctx.op, ctx.process_set, ctx.options = op, process_set, options
        return tuple(grouped_reducescatter_async(tensors, name, op, process_set=process_set,
                                                 **options).wait())

    @staticmethod
    def backward(ctx, *grads):
        wholes = grouped_allgather([_scattered_grad(ctx, grad) for grad in grads],
                                   process_set=ctx.process_set)
        return None, None, None, None, *wholes


def grouped_reducescatter(tensors: Sequence[torch.Tensor], name: str | None = None,
                          op: int = Average, *, compression: type = Compression.none,
                          process_set: ProcessSet = world, **options: Any) -> list[torch.Tensor]:
    """This rank's rows of several tensors' reductions: a list in the order of `tensors`."""
    pairs = [compression.compress(tensor) for tensor in tensors]
    results = _GroupedReducescatter.apply(name, op, process_set, options,
                                          *[tensor for tensor, _ in pairs])
    return [compression.decompress(result, context)
            for result, (_, context) in zip(results, pairs)]


def poll(handle: Handle | Group) -> bool:
    """Whether an operation is done. Does not block."""
    return handle.done()


def synchronize(handle: Handle | Group) -> Any:
    """The result of an operation, once it is done; raises its error."""
    return handle.wait()
