"""The library's optimizers: SGD, Adam and AdamW over a gradient set, sharded or not."""
from __future__ import annotations

import ctypes
import os
from typing import Any, NamedTuple, Sequence

import numpy as np

from dtrain import _abi, errors
from dtrain._library import lib
from dtrain.gradients import GradientSet, SetOwner, array_at

RULES = {"sgd": _abi.RULE_SGD, "adam": _abi.RULE_ADAM, "adamw": _abi.RULE_ADAMW}


class Step(NamedTuple):
    """What a step did."""
    skipped: bool      # a gradient was not finite, and nothing was changed
    step: int          # steps that changed the parameters, so far
    norm: float        # of the gradients over all ranks, before clipping; 0 unless max_norm or
                       # loss_scale ask for it
    clip: float        # the factor by which clipping made them smaller; 1: not
    loss_scale: float  # for the next step; 1 without


class OptimizerStats(NamedTuple):
    """What an optimizer has come to."""
    state_bytes: int   # of this rank, once there was a step or a load
    updated_s: float   # in updates, over all steps
    gathered_s: float  # in waits for gathered parameters, over all steps
    copied_bytes: int  # of parameters, into the library's memory and out of it


def described(rule: str, *, sharded: bool = False, momentum: float = 0.0, nesterov: bool = False,
              weight_decay: float = 0.0, betas: tuple[float, float] = (0.9, 0.999),
              eps: float = 1e-8, max_norm: float = 0.0, loss_scale: float = 0.0,
              growth_interval: int = 0) -> _abi.OptimizerDesc:
    """A dtrain_optimizer_desc_t."""
    if rule not in RULES:
        raise ValueError(f"{rule!r} is no optimizer; there are {', '.join(RULES)}")
    # To the library 0 is a default, and what is negative is 0.
    beta1, beta2, epsilon = (value or -1.0 for value in (*betas, eps))
    return _abi.OptimizerDesc(
        struct_size=ctypes.sizeof(_abi.OptimizerDesc), rule=RULES[rule], sharded=int(sharded),
        nesterov=int(nesterov), momentum=momentum, weight_decay=weight_decay, beta1=beta1,
        beta2=beta2, epsilon=epsilon, max_norm=max_norm, loss_scale=loss_scale,
        growth_interval=growth_interval)


class OptimizerOwner:
    """A dtrain_optimizer_t, destroyed before its set, when nothing uses its memory any more."""

    def __init__(self, owner: SetOwner, desc: _abi.OptimizerDesc):
        self.owner = owner
        self.on_gpu = owner.on_gpu
        self.pointer = ctypes.c_void_p()
        errors.check(lib.dtrain_optimizer_create(owner.pointer, desc, self.pointer))

    def address(self, index: int) -> int:
        """Where a parameter lies."""
        values = ctypes.c_void_p()
        errors.check(lib.dtrain_optimizer_param(self.pointer, index, values))
        return values.value or 0

    def step(self, lr: float) -> Step:
        """Ends the set's step and updates the parameters."""
        info = _abi.StepInfo(struct_size=ctypes.sizeof(_abi.StepInfo))
        errors.check(lib.dtrain_optimizer_step(self.pointer, lr, info))
        return _step_of(info)

    def stream_step(self, lr: float, stream: int | None) -> Step:
        """The same in a stream of the GPU."""
        info = _abi.StepInfo(struct_size=ctypes.sizeof(_abi.StepInfo))
        errors.check(lib.dtrain_optimizer_stream_step(self.pointer, lr, stream, info))
        return _step_of(info)

    def broadcast(self, root: int) -> None:
        """Gives all ranks what rank `root` has."""
        errors.check(lib.dtrain_optimizer_broadcast(self.pointer, root))

    def save(self, path: str | os.PathLike, in_shards: bool) -> None:
        """Writes parameters and state."""
        errors.check(lib.dtrain_optimizer_save(self.pointer, os.fsencode(path), int(in_shards)))

    def load(self, path: str | os.PathLike, root: int | None) -> None:
        """Reads what was saved."""
        errors.check(lib.dtrain_optimizer_load(self.pointer, os.fsencode(path),
                                               -1 if root is None else root))

    def stats(self) -> OptimizerStats:
        """What it has come to."""
        stats = _abi.OptimizerStats(struct_size=ctypes.sizeof(_abi.OptimizerStats))
        errors.check(lib.dtrain_optimizer_get_stats(self.pointer, stats))
        return OptimizerStats(stats.state_bytes, stats.updated_ns * 1e-9, stats.gathered_ns * 1e-9,
                              stats.copied_bytes)

    def __del__(self) -> None:
        if getattr(self, "pointer", None) and lib is not None:  # None when the interpreter ends
            lib.dtrain_optimizer_destroy(self.pointer)


def _step_of(info: _abi.StepInfo) -> Step:
    return Step(bool(info.skipped), info.step, info.norm, info.clip, info.loss_scale)


class Optimizer:
    """Updates parameters from the gradients of a set, the same on all ranks, bit for bit.

        gradients = dtrain.GradientSet({"weight": (4, 2), "bias": (2,)})
        optimizer = dtrain.Optimizer(gradients, "adamw", weight_decay=0.01, sharded=True)
        weight, bias = optimizer.arrays
        ...                                     # rank 0 fills them in
        optimizer.broadcast(0)
        for ...:
            ...                                 # write gradients.arrays, mark each as ready
            optimizer.step(lr=0.001)

    gradients:     the set; it has one optimizer at most.
    rule:          "sgd", "adam" or "adamw", as torch.optim's.
    sharded:       each of n ranks keeps the state of 1/n of the parameters and updates these.
    momentum, nesterov: of "sgd".
    betas, eps:    of "adam" and "adamw".
    weight_decay:  added to the gradient; with "adamw" it shrinks the parameter.
    max_norm:      the global norm to which gradients are scaled down; 0: any.
    loss_scale, growth_interval: what the program multiplies its loss by at first, 0: nothing; and
                   the good steps until it doubles, 0: 2000, -1: never.

    Making it is collective on the set's ranks, which give the same arguments. The arrays must not
    be touched after dtrain.shutdown().
    """

    def __init__(self, gradients: GradientSet, rule: str = "adamw", **options: Any):
        self._owner = OptimizerOwner(gradients._owner, described(rule, **options))
        #: The parameters, in the library's memory and zero at first, in the order of the set.
        self.arrays: Sequence[np.ndarray] = [
            array_at(self._owner, i, array.shape, array.dtype)
            for i, array in enumerate(gradients.arrays)]

    def step(self, lr: float) -> Step:
        """Ends the set's step, as GradientSet.wait, and updates all parameters. `lr` is the same on
        all ranks. A gradient that is not finite on any rank changes nothing where max_norm or
        loss_scale ask for a look."""
        return self._owner.step(lr)

    def stream_step(self, lr: float, stream: int | None = None) -> Step:
        """The same on a GPU, whose set has device="cuda": what is put into the stream (the address
        of a cudaStream_t; None: the default one) from now on finds the new parameters. The host
        waits for the GPU only where max_norm or loss_scale ask for the norm."""
        return self._owner.stream_step(lr, stream)

    def broadcast(self, root: int = 0) -> None:
        """Gives all ranks the parameters of rank `root`, its number of steps and its loss scale;
        unsharded, its state as well. Collective, between steps."""
        self._owner.broadcast(root)

    def save(self, path: str | os.PathLike, in_shards: bool = False) -> None:
        """Writes parameters and state to one file, or a file a rank and an index at `path`.
        Collective, between steps."""
        self._owner.save(path, in_shards)

    def load(self, path: str | os.PathLike, root: int | None = None) -> None:
        """Loads what was saved at any number of ranks, sharded or not. `root`: the one rank that
        reads the file; None: every rank reads it. Collective, between steps."""
        self._owner.load(path, root)

    def stats(self) -> OptimizerStats:
        """What the optimizer has come to."""
        return self._owner.stats()
