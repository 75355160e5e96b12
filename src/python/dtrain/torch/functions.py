"""Parameters, optimizer states and objects from one rank to all."""
from __future__ import annotations

from typing import Any, Iterable

import torch

from dtrain.agree import check_with
from dtrain.objects import allgather_object, broadcast_object
from dtrain.process_sets import ProcessSet, world
from dtrain.torch._tensors import TORCH
from dtrain.torch.plain import broadcast_async_
from dtrain.lifecycle import rank

__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state",
           "broadcast_parameters", "check_equal"]


def broadcast_parameters(params: Any, root: int = 0, *, process_set: ProcessSet = world) -> None:
    """Replaces tensors by rank `root`'s, in place.

    params: a dict as model.state_dict() gives it, or an iterable of tensors or of (name, tensor)
            as model.named_parameters(). Entries that are no tensors are left alone.
    """
    handles, copies = [], []
    for name, tensor in _named_tensors(params):
        data = tensor.detach()
        dense = data if data.is_contiguous() else data.contiguous()
        if dense is not data:
            copies.append((data, dense))
        handles.append(broadcast_async_(dense, root, f"parameters.{name}",
                                        process_set=process_set))
    for handle in handles:
        handle.wait()
    for data, dense in copies:
        data.copy_(dense)


def check_equal(params: Any, *, process_set: ProcessSet = world) -> None:
    """Raises Mismatch on all ranks, with the first tensor that differs and the ranks that differ
    from most, unless tensors are the same on all ranks, bit for bit. `params` as for
    broadcast_parameters."""
    tensors = [(name, tensor.detach() if tensor.layout is not torch.strided
                else tensor.detach().contiguous()) for name, tensor in _named_tensors(params)]
    check_with(TORCH, tensors, process_set, None)


def _named_tensors(params: Any) -> list[tuple[str, torch.Tensor]]:
    if isinstance(params, dict):
        pairs = sorted(params.items())
    elif isinstance(params, Iterable) and not isinstance(params, (str, torch.Tensor)):
        pairs = [entry if isinstance(entry, tuple) else (f"parameter.{i}", entry)
                 for i, entry in enumerate(params)]
    else:
        raise ValueError(f"parameters of type {type(params).__name__}: give a dict or a list")
    return [(name, tensor) for name, tensor in pairs if torch.is_tensor(tensor)]


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root: int = 0,
                              model: torch.nn.Module | None = None, *,
                              process_set: ProcessSet = world) -> None:
    """Replaces an optimizer's whole state by rank `root`'s: learning rates and other options,
    momenta, step counts. The other ranks' may be empty, as before a checkpoint that only the root
    has loaded. `model` is not needed, and is taken for Horovod's sake.

    ValueError for L-BFGS, whose state is not one of tensors by parameter."""
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("the state of torch.optim.LBFGS cannot be broadcast")
    is_root = rank() == root
    state = optimizer.state_dict() if is_root else None
    tensors: list[torch.Tensor] = []
    outline = broadcast_object(_without_tensors(state, tensors) if is_root else None, root,
                               "optimizer.outline", process_set=process_set)
    if not is_root:
        tensors = [torch.empty(shape, dtype=dtype) for shape, dtype in outline["tensors"]]
    handles = [broadcast_async_(tensor, root, f"optimizer.tensor.{i}", process_set=process_set)
               for i, tensor in enumerate(tensors)]
    for handle in handles:
        handle.wait()
    if not is_root:
        _check_groups(optimizer, outline["state"])
        optimizer.load_state_dict(_with_tensors(outline["state"], tensors))


class _Place:
    """Stands where a tensor was, in an outline."""

    def __init__(self, index: int):
        self.index = index


def _without_tensors(state: dict, tensors: list[torch.Tensor]) -> dict:
    """A state_dict with places for its tensors, which are appended to `tensors`, in host memory:
    load_state_dict brings each to its parameter, and another rank has other devices."""
    def outline(value: Any) -> Any:
        if torch.is_tensor(value):
            tensors.append(value.detach().cpu().contiguous())
            return _Place(len(tensors) - 1)
        return value

    kept = _mapped(state, outline)
    return {"state": kept, "tensors": [(tuple(t.shape), t.dtype) for t in tensors]}


def _with_tensors(state: dict, tensors: list[torch.Tensor]) -> dict:
    return _mapped(state, lambda entry: tensors[entry.index] if isinstance(entry, _Place)
                   else entry)


def _mapped(value: Any, function: Any) -> Any:
    """A copy of nested dicts, lists and tuples with `function` applied to what they hold."""
    if isinstance(value, dict):
        return {key: _mapped(entry, function) for key, entry in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_mapped(entry, function) for entry in value)
    return function(value)


def _check_groups(optimizer: torch.optim.Optimizer, state: dict) -> None:
    mine = [len(group["params"]) for group in optimizer.param_groups]
    roots = [len(group["params"]) for group in state["param_groups"]]
    if mine != roots:
        raise ValueError(f"the root's optimizer has groups of {roots} parameters, this one {mine}")
