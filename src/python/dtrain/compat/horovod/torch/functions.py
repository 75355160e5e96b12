"""Horovod's functions for parameters, optimizer states and objects."""
from __future__ import annotations

from typing import Any

import torch

import dtrain.torch as dt
from horovod.common.process_sets import ProcessSet, global_process_set

__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state",
           "broadcast_parameters"]


def broadcast_parameters(params: Any, root_rank: int) -> None:
    """Replaces tensors by the root's, in place."""
    dt.broadcast_parameters(params, root_rank)


def broadcast_optimizer_state(optimizer: Any, root_rank: int, model: Any = None) -> None:
    """Replaces an optimizer's state by the root's. As with Horovod, parameters of an optimizer that
    has taken no step have gradients of zeros afterwards."""
    if not optimizer.state:
        for group in optimizer.param_groups:
            for param in group["params"]:
                if param.requires_grad and param.grad is None:
                    param.grad = torch.zeros_like(param.data)
    dt.broadcast_optimizer_state(optimizer, root_rank, model)


def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None,
                     process_set: ProcessSet = global_process_set) -> Any:
    """The root's object, on every rank."""
    return dt.broadcast_object(obj, root_rank, name, process_set=process_set)


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """Every rank's object, in rank order."""
    return dt.allgather_object(obj, name)
