"""State of a training that can be taken back to its last commit.

The world's membership is fixed: a rank that is lost ends the job on all ranks with RankLost. What
leaves the world whole, such as an operation on which ranks disagreed, takes every rank back to the
last commit.
"""
from __future__ import annotations

import copy
import functools
from typing import Any, Callable, Iterable

import torch

from dtrain import errors, lifecycle
from dtrain.objects import broadcast_object
from dtrain.torch.functions import broadcast_optimizer_state, broadcast_parameters
from dtrain.torch.sampler import ElasticSampler

__all__ = ["ElasticSampler", "TorchState", "run"]


class TorchState:
    """A training's state: a model, an optimizer, samplers, and any other values, each an attribute
    under the name that it is given by.

        state = TorchState(model=model, optimizer=optimizer, epoch=0, batch=0)
    """

    def __init__(self, model: torch.nn.Module | None = None,
                 optimizer: torch.optim.Optimizer | None = None, **values: Any):
        if model is not None:
            values["model"] = model
        if optimizer is not None:
            values["optimizer"] = optimizer
        self._names = list(values)
        self._saved: dict[str, Any] = {}
        self._reset_callbacks: list[Callable[[], None]] = []
        for name, value in values.items():
            setattr(self, name, value)
        self.save()

    def _stateful(self) -> dict[str, Any]:
        """Those attributes that have a state of their own."""
        return {name: getattr(self, name) for name in self._names
                if hasattr(getattr(self, name), "load_state_dict")}

    def _plain(self) -> dict[str, Any]:
        own = self._stateful()
        return {name: getattr(self, name) for name in self._names if name not in own}

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], None]]) -> None:
        """Functions that are called after each reset."""
        self._reset_callbacks.extend(callbacks)

    def save(self) -> None:
        """Keeps a copy of everything in memory."""
        self._saved = copy.deepcopy({name: value.state_dict()
                                     for name, value in self._stateful().items()})
        self._saved.update(copy.deepcopy(self._plain()))

    def commit(self) -> None:
        """Keeps a copy to which errors lead back. Costs a copy of model and optimizer, so not after
        every batch."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Nothing: hosts do not come and go."""

    def restore(self) -> None:
        """Takes everything back to the last commit."""
        own = self._stateful()
        for name, value in copy.deepcopy(self._saved).items():
            if name in own:
                own[name].load_state_dict(value)
            else:
                setattr(self, name, value)

    def sync(self) -> None:
        """Replaces every rank's state by rank 0's."""
        for name, value in self._stateful().items():
            if isinstance(value, torch.nn.Module):
                broadcast_parameters(value.state_dict(), 0)
            elif isinstance(value, torch.optim.Optimizer):
                broadcast_optimizer_state(value, 0)
            else:
                value.load_state_dict(broadcast_object(value.state_dict(), 0, "state." + name))
        for name, value in broadcast_object(self._plain(), 0, "state.values").items():
            setattr(self, name, value)
        self.save()

    def on_reset(self) -> None:
        """Called when the world was made anew."""
        for value in self._stateful().values():
            if isinstance(value, ElasticSampler):
                value.reset()
        for callback in self._reset_callbacks:
            callback()


def run(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a training function whose first argument is a TorchState: before it runs, every
    rank has rank 0's state; after an error that left the world whole, it runs again from the last
    commit. An error that ended the world is raised."""

    @functools.wraps(function)
    def wrapper(state: TorchState, *args: Any, **kwargs: Any) -> Any:
        while True:
            try:
                state.sync()
                return function(state, *args, **kwargs)
            except errors.WorldLost:
                raise
            except errors.Error:
                state.restore()
                lifecycle.shutdown()
                lifecycle.init()
                state.on_reset()

    return wrapper
