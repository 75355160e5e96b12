"""Gradients of a torch optimizer as views of a gradient set of the library."""
from __future__ import annotations

import weakref
from typing import Any, Callable

import numpy as np
import torch

from dtrain import _abi, errors, gradients, lifecycle
from dtrain._library import lib
from dtrain.device import cuda_device
from dtrain.process_sets import ProcessSet
from dtrain.torch._reducer import Hooks, Parameter, too_many_passes
from dtrain.torch._tensors import current_stream, from_array, library_type, numpy_name


class SetReducer(Hooks):
    """As Reducer, for dense gradients: each lies in the library's memory, and is marked as ready by
    its number."""

    def __init__(self, optimizer: torch.optim.Optimizer, names: dict[Parameter, str], *,
                 passes: int, op: int, predivide: float, process_set: ProcessSet,
                 at_any_size: bool = False):
        super().__init__()
        self.names = names
        self.passes = passes
        self.options = {"op": op, "prescale": 1 / predivide, "postscale": predivide,
                        "process_set": process_set}
        self.params = [param for group in optimizer.param_groups for param in group["params"]
                       if param.requires_grad]
        self.index = {param: i for i, param in enumerate(self.params)}
        self.marks = [0] * len(self.params)
        self.owner: gradients.SetOwner | None = None
        self.views: list[torch.Tensor] = []
        self.active = process_set.included() and (at_any_size or process_set.size() > 1)
        if self.active:
            self._make()
            self.hook(self.params)

    def _make(self) -> None:
        """Makes the set, in this world, and moves the gradients that there are into it."""
        kinds = {param.device.type for param in self.params}
        if len(kinds) > 1:
            raise ValueError(f"parameters on {' and '.join(sorted(kinds))}: all are to be in one "
                             "kind of memory")
        self.owner = gradients.create(
            [self.names[param] for param in self.params],
            [tuple(param.shape) for param in self.params],
            [library_type(param.dtype) for param in self.params],
            device=kinds.pop() if kinds else "cpu", **self.options)
        self.views = [view_at(self.owner, i, param) for i, param in enumerate(self.params)]
        self.set_passes(self.passes)
        for param, view in zip(self.params, self.views):
            if param.grad is not None:
                view.copy_(param.grad)
            param.grad = view
        lifecycle.before_shutdown(weakref.WeakMethod(self._leave))

    def _leave(self) -> None:
        """The library's memory goes with the world: gradients in it become tensors of their own."""
        for param, view in zip(self.params, self.views):
            if param.grad is view:
                param.grad = view.clone()
        finish_on_gpu(self.owner)
        self.owner, self.views = None, []
        self.marks = [0] * len(self.params)

    def set_passes(self, passes: int) -> None:
        """How many backward passes add to a gradient before it is reduced."""
        self.passes = passes
        if self.owner is not None:
            errors.check(lib.dtrain_gradset_set_accumulation(self.owner.pointer, passes))

    def on_gradient(self, param: Parameter) -> None:
        """Marks a gradient as ready."""
        if self.owner is None:  # the world was left, and there is a new one
            self._make()
        index = self.index[param]
        if self.marks[index] == self.passes:
            raise too_many_passes(self.names[param], self.passes)
        self._into_view(index)
        self._mark(index)

    def _into_view(self, index: int) -> None:
        """Brings a gradient that the program has put elsewhere back."""
        param, view = self.params[index], self.views[index]
        if param.grad is view:
            return
        if param.grad is None:
            view.zero_()
        elif param.grad.is_sparse:
            raise TypeError(f"the gradient of '{self.names[param]}' is sparse: use "
                            "gradients_as_views=False")
        else:
            view.copy_(param.grad)
        param.grad = view

    def _mark(self, index: int) -> None:
        stream = current_stream() if self.owner.on_gpu else None
        status = lib.dtrain_gradset_ready(self.owner.pointer, index, stream)
        if status != _abi.OK:
            raise errors.make(status, self.names[self.params[index]])
        self.marks[index] += 1

    @property
    def is_busy(self) -> bool:
        """Whether gradients are being reduced."""
        return self.passes in self.marks

    def mark_rest(self) -> None:
        """Marks what backward did not: a wait may end the step."""
        if self.owner is None:
            self._make()
        self.say_unused([self.names[param] for param, marks in zip(self.params, self.marks)
                         if marks == 0], len(self.params))
        for index in range(len(self.params)):
            self._into_view(index)
            while self.marks[index] < self.passes:
                self._mark(index)
        self.marks = [0] * len(self.params)

    def synchronize(self) -> None:
        """Marks what backward did not, and waits until every gradient is reduced; on a GPU the
        current stream waits."""
        if not self.active:
            return
        self.mark_rest()
        if self.owner.on_gpu:
            errors.check(lib.dtrain_gradset_stream_wait(self.owner.pointer, current_stream()))
        else:
            errors.check(lib.dtrain_gradset_wait(self.owner.pointer))

    def forget(self) -> None:
        """Starts afresh. A step that was begun is ended, as it has to be on all ranks."""
        if any(self.marks):
            self.synchronize()

    def zero_grad(self, plain: Callable[..., None]) -> None:
        """Fills the gradients with zeros where they lie."""
        if not self.views:
            plain(set_to_none=False)
            return
        for param, view in zip(self.params, self.views):
            view.zero_()
            param.grad = view


def view_at(owner: Any, index: int, param: Parameter) -> torch.Tensor:
    """A tensor of the parameter's shape and type at `owner.address(index)`; as long as it lives so
    does the owner."""
    array = gradients.array_at(owner, index, tuple(param.shape), np.dtype(numpy_name(param.dtype)))
    view = from_array(array, param.dtype)
    if view.device != param.device:
        raise ValueError(f"a parameter on {param.device}, and this rank uses {view.device}: call "
                         "torch.cuda.set_device() before all else")
    return view


def finish_on_gpu(owner: Any) -> None:
    """Waits until a GPU has done all that torch has put into it, as calls without a stream need."""
    if owner is not None and owner.on_gpu:
        torch.cuda.synchronize(cuda_device())
