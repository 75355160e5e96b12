"""Optimizer: the library's SGD, Adam and AdamW on a torch model's parameters, sharded or not."""
from __future__ import annotations

import functools
import os
import weakref
from typing import Any, Callable, Iterable

import torch

from dtrain import errors, lifecycle
from dtrain.optimizer import OptimizerOwner, OptimizerStats, Step, described
from dtrain.process_sets import ProcessSet, world
from dtrain.reductions import Average
from dtrain.torch._reducer import Parameter, named
from dtrain.torch._set_reducer import SetReducer, finish_on_gpu, view_at
from dtrain.torch._tensors import current_stream


class Optimizer(torch.optim.Optimizer):
    """Reduces gradients over all ranks while backward computes them, and updates the parameters in
    the library, as dtrain.Optimizer. Parameters and gradients lie in the library's memory: nothing
    is copied, and sharded each of n ranks keeps 1/n of the optimizer's state.

        optimizer = dt.Optimizer(model.named_parameters(), "adamw", lr=0.001, sharded=True)
        optimizer.broadcast(0)
        for ...:
            optimizer.zero_grad()
            loss(model(x)).backward()
            optimizer.step()

    named_parameters: model.named_parameters(); of 16, 32 or 64 bits, with dense gradients.
    rule:             "sgd", "adam" or "adamw", as torch.optim's.
    lr:               the learning rate, which schedulers may change.
    op, process_set, backward_passes_per_step: as for DistributedOptimizer.
    options:          sharded, momentum, nesterov, weight_decay, betas, eps, max_norm, loss_scale,
                      growth_interval, as of dtrain.Optimizer.

    save() and load() stand in for state_dict(), since no rank has the whole state. It ends with
    dtrain.shutdown(), after which the parameters are plain tensors.
    """

    def __init__(self, named_parameters: Iterable[tuple[str, Parameter]], rule: str = "adamw", *,
                 lr: float, op: int = Average, process_set: ProcessSet = world,
                 backward_passes_per_step: int = 1, **options: Any):
        pairs = [(name, param) for name, param in named_parameters if param.requires_grad]
        super().__init__([param for _, param in pairs], {"lr": lr})
        desc = described(rule, **options)
        self._reducer = SetReducer(self, named(self, pairs), passes=backward_passes_per_step,
                                   op=op, predivide=1.0, process_set=process_set,
                                   at_any_size=True)
        self._owner: OptimizerOwner | None = OptimizerOwner(self._reducer.owner, desc)
        for index, param in enumerate(self._reducer.params):
            values = view_at(self._owner, index, param)
            values.copy_(param.data)
            param.data = values
        self._was_synchronized = False
        #: What the last step did; None before the first.
        self.last_step: Step | None = None
        lifecycle.before_shutdown(weakref.WeakMethod(self._leave))

    def _leave(self) -> None:
        """The library's memory goes with the world."""
        for param in self._reducer.params:
            param.data = param.data.clone()
        finish_on_gpu(self._owner)
        self._owner = None

    def _library(self) -> OptimizerOwner:
        if self._owner is None:
            raise errors.NotInitialized("this optimizer belongs to a world that was shut down")
        return self._owner

    def _between_steps(self) -> OptimizerOwner:
        owner = self._library()
        finish_on_gpu(owner)
        return owner

    def synchronize(self) -> None:
        """Waits until all gradients are reduced, to look at them or change them before step()."""
        self._library()
        self._reducer.synchronize()
        self._was_synchronized = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates the parameters with the gradients of all ranks."""
        owner, loss = self._library(), None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if not self._was_synchronized:
            self._reducer.mark_rest()
        self._was_synchronized = False
        rate = self.param_groups[0]["lr"]
        self.last_step = owner.stream_step(rate, current_stream()) if owner.on_gpu \
            else owner.step(rate)
        return loss

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Fills the gradients with zeros where they lie, whatever `set_to_none` says."""
        self._reducer.check_idle()
        self._reducer.zero_grad(functools.partial(super().zero_grad))

    def add_param_group(self, param_group: dict) -> None:
        """The one group that there is."""
        if self.param_groups:
            raise ValueError("one group of parameters, with one learning rate")
        super().add_param_group(param_group)

    def broadcast(self, root: int = 0) -> None:
        """Gives all ranks the parameters of rank `root`, its number of steps and its loss scale;
        unsharded, its state as well. Collective, between steps."""
        self._between_steps().broadcast(root)

    def save(self, path: str | os.PathLike, in_shards: bool = False) -> None:
        """Writes parameters and state to one file, or a file a rank and an index at `path`.
        Collective, between steps."""
        self._between_steps().save(path, in_shards)

    def load(self, path: str | os.PathLike, root: int | None = None) -> None:
        """Loads what was saved at any number of ranks, sharded or not. `root`: the one rank that
        reads the file; None: every rank reads it. Collective, between steps."""
        self._between_steps().load(path, root)

    def stats(self) -> OptimizerStats:
        """What the optimizer has come to."""
        return self._library().stats()

    def state_dict(self) -> dict:
        """Not here: use save()."""
        raise NotImplementedError("no rank has the whole state: use save() and load()")

    def load_state_dict(self, state_dict: dict) -> None:
        """Not here: use load()."""
        raise NotImplementedError("no rank has the whole state: use save() and load()")
