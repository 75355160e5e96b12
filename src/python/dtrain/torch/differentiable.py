"""Collectives on torch tensors that can be differentiated. See dtrain.torch.operations."""
from __future__ import annotations

from typing import Any, Callable, Sequence

import torch

from dtrain.lifecycle import rank
from dtrain.process_sets import ProcessSet, world
from dtrain.reductions import Average, Sum
from dtrain.torch.compression import Compression
from dtrain.torch.plain import (allgather_async, allreduce_async, alltoall_async, broadcast_async,
                                grouped_allgather_async, grouped_allreduce_async,
                                grouped_reducescatter_async, reducescatter_async)


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, op, options):
        ctx.op, ctx.options = op, options
        return allreduce_async(tensor, name, op, _blocking=True, **options).complete()

    @staticmethod
    def backward(ctx, grad):
        return allreduce(grad.contiguous(), None, ctx.op, **ctx.options), None, None, None


def allreduce(tensor: torch.Tensor, name: str | None = None, op: int = Average, *,
              compression: type = Compression.none, **options: Any) -> torch.Tensor:
    """The reduction of all ranks' tensors: a new tensor of the same shape and type. The gradient is
    reduced likewise."""
    compressed, context = compression.compress(tensor)
    return compression.decompress(_Allreduce.apply(compressed, name, op, options), context)


class _GroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, op, options, *tensors):
        ctx.op, ctx.options = op, options
        return tuple(grouped_allreduce_async(tensors, name, op, **options).complete())

    @staticmethod
    def backward(ctx, *grads):
        grads = [grad.contiguous() for grad in grads]
        return None, None, None, *grouped_allreduce(grads, None, ctx.op, **ctx.options)


def grouped_allreduce(tensors: Sequence[torch.Tensor], name: str | None = None, op: int = Average,
                      *, compression: type = Compression.none,
                      **options: Any) -> list[torch.Tensor]:
    """The reductions of several tensors, as one group: a list in the order of `tensors`."""
    return _compressed(compression, tensors, lambda compressed: _GroupedAllreduce.apply(
        name, op, options, *compressed))


def _compressed(compression: type, tensors: Sequence[torch.Tensor],
                function: Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]
                ) -> list[torch.Tensor]:
    """What a function gives of compressed tensors, decompressed."""
    pairs = [compression.compress(tensor) for tensor in tensors]
    results = function([tensor for tensor, _ in pairs])
    return [compression.decompress(result, context)
            for result, (_, context) in zip(results, pairs)]


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, process_set):
        ctx.process_set = process_set
        ctx.rows = tensor.shape[0] if tensor.dim() else 0
        return allgather_async(tensor, name, process_set=process_set, _blocking=True).complete()

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


class _GroupedAllgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, process_set, *tensors):
        ctx.process_set = process_set
        ctx.rows = [tensor.shape[0] if tensor.dim() else 0 for tensor in tensors]
        return tuple(grouped_allgather_async(tensors, name, process_set=process_set).complete())

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


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, root, name, process_set):
        ctx.root, ctx.process_set = root, process_set
        return broadcast_async(tensor, root, name, process_set=process_set, _blocking=True).complete()

    @staticmethod
    def backward(ctx, grad):
        average = allreduce(grad.contiguous(), process_set=ctx.process_set)
        return average if rank() == ctx.root else average * 0, None, None, None


def broadcast(tensor: torch.Tensor, root: int, name: str | None = None, *,
              process_set: ProcessSet = world) -> torch.Tensor:
    """Rank `root`'s tensor, on every rank. The root's gradient is the average of all ranks'."""
    return _Broadcast.apply(tensor, root, name, process_set)


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        ctx.process_set = process_set
        result, received = alltoall_async(tensor, splits, name, process_set=process_set,
                                          _blocking=True).complete()
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
                                   **options).complete()

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


class _GroupedReducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, op, process_set, options, *tensors):
        ctx.op, ctx.process_set, ctx.options = op, process_set, options
        return tuple(grouped_reducescatter_async(tensors, name, op, process_set=process_set,
                                                 **options).complete())

    @staticmethod
    def backward(ctx, *grads):
        wholes = grouped_allgather([_scattered_grad(ctx, grad) for grad in grads],
                                   process_set=ctx.process_set)
        return None, None, None, None, *wholes


def grouped_reducescatter(tensors: Sequence[torch.Tensor], name: str | None = None,
                          op: int = Average, *, compression: type = Compression.none,
                          process_set: ProcessSet = world, **options: Any) -> list[torch.Tensor]:
    """This rank's rows of several tensors' reductions: a list in the order of `tensors`."""
    return _compressed(compression, tensors, lambda compressed: _GroupedReducescatter.apply(
        name, op, process_set, options, *compressed))
