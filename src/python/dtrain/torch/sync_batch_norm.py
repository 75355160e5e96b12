"""Batch normalisation over the batches of all ranks."""
from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from dtrain.reductions import Sum
from dtrain.process_sets import ProcessSet, world
from dtrain.torch.plain import allgather_async, allreduce_async


class SyncBatchNorm(_BatchNorm):
    """As torch.nn.BatchNorm1d, 2d and 3d, with mean and variance of all ranks' inputs while it
    trains: normalising does not depend on how a batch is dealt out. Inputs are (N, C, …); N may
    differ by rank. The gradients of weight and bias are this rank's own, to be reduced by the
    optimizer as all others."""

    process_set: ProcessSet = world

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"an input of {input.dim()} dimensions, not (N, C, …)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        uses_batch = self.training or self.running_mean is None
        if not uses_batch or self.process_set.size() == 1:
            return super().forward(input)
        momentum = self.momentum
        if self.training and self.track_running_stats:
            self.num_batches_tracked += 1
            if momentum is None:  # a plain average over all batches
                momentum = 1 / float(self.num_batches_tracked)
        running = (self.running_mean, self.running_var) if self.training else (None, None)
        return _Normalise.apply(input, self.weight, self.bias, *running, self.eps, momentum or 0.0,
                                self.process_set)

    @classmethod
    def convert(cls, module: torch.nn.Module) -> torch.nn.Module:
        """The module with every batch normalisation in it, however deep, replaced by one over all
        ranks, with the same parameters."""
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            new = cls(module.num_features, module.eps, module.momentum, module.affine,
                      module.track_running_stats)
            new.weight, new.bias = module.weight, module.bias
            new.running_mean, new.running_var = module.running_mean, module.running_var
            new.num_batches_tracked = module.num_batches_tracked
            return new.train(module.training)
        for name, child in module.named_children():
            module.add_module(name, cls.convert(child))
        return module


def _per_channel(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return values.to(like.dtype).view(1, -1, *[1] * (like.dim() - 2))


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input, weight, bias, running_mean, running_var, eps, momentum,
                process_set):
        mean, var, count = _statistics(input, process_set)
        if running_mean is not None:
            unbiased = var * (count / max(count - 1, 1))
            running_mean.mul_(1 - momentum).add_(mean.to(running_mean.dtype), alpha=momentum)
            running_var.mul_(1 - momentum).add_(unbiased.to(running_var.dtype), alpha=momentum)
        inverse = (var + eps).rsqrt()
        ctx.save_for_backward(input, weight, mean, inverse)
        ctx.count, ctx.process_set = count, process_set
        result = (input - _per_channel(mean, input)) * _per_channel(inverse, input)
        if weight is not None:
            result = result * _per_channel(weight, input) + _per_channel(bias, input)
        return result

    @staticmethod
    def backward(ctx: Any, grad):
        input, weight, mean, inverse = ctx.saved_tensors
        dims = [dim for dim in range(input.dim()) if dim != 1]
        normal = (input - _per_channel(mean, input)) * _per_channel(inverse, input)
        grad_bias = grad.sum(dims)
        grad_weight = (grad * normal).sum(dims)
        sums = torch.stack([grad_bias, grad_weight]).double()
        sums = allreduce_async(sums, "sync_batch_norm.sums", Sum,
                               process_set=ctx.process_set).complete() / ctx.count
        scale = inverse if weight is None else inverse * weight.double()
        grad_input = (grad - _per_channel(sums[0], input)
                      - normal * _per_channel(sums[1], input)) * _per_channel(scale, input)
        if weight is None:
            grad_weight = grad_bias = None
        return grad_input, grad_weight, grad_bias, None, None, None, None, None


def _statistics(input: torch.Tensor,
                process_set: ProcessSet) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Mean and biased variance of each channel over all ranks, in double, and how many values a
    channel has. Ranks' squared deviations from their own means are joined, which cancels less than
    sums of squares do."""
    dims = [dim for dim in range(input.dim()) if dim != 1]
    channels = input.shape[1]
    own = input.numel() / channels
    mean = input.double().sum(dims) / max(own, 1)
    deviation = ((input.double() - _per_channel(mean, input).double()) ** 2).sum(dims)
    row = torch.cat([mean.new_tensor([own]), mean, deviation])
    rows = allgather_async(row.unsqueeze(0), "sync_batch_norm.statistics",
                           process_set=process_set).complete()
    counts, means, deviations = rows[:, :1], rows[:, 1:channels + 1], rows[:, channels + 1:]
    count = float(counts.sum())
    total_mean = (counts * means).sum(0) / count
    var = (deviations + counts * (means - total_mean) ** 2).sum(0) / count
    return total_mean, var, count
