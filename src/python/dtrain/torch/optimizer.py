"""DistributedOptimizer: a torch optimizer whose gradients are reduced over all ranks.

Each gradient is submitted as soon as backward has computed it, so reducing it overlaps the rest of
the backward pass; step() waits for all of them.
"""
from __future__ import annotations

import contextlib
import functools
import warnings
from typing import Any, Iterable, Iterator, Sequence

import torch

from dtrain.reductions import Adasum, Average
from dtrain.process_sets import ProcessSet, world
from dtrain.torch._reducer import Parameter, Reducer, named
from dtrain.torch._set_reducer import SetReducer
from dtrain.torch._tensors import complete
from dtrain.torch.compression import Compression
from dtrain.torch.plain import allreduce_async_

class _Distributed:
    """What a DistributedOptimizer adds to the class of the optimizer that it wraps."""

    _reducer: Reducer | SetReducer
    _was_synchronized = False
    _synchronizes = True

    def synchronize(self) -> None:
        """Waits until all gradients are reduced; before clipping them, for example. step() then
        goes into `with optimizer.skip_synchronize():`."""
        self._reducer.synchronize()
        self._was_synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """In it step() does not reduce gradients, since synchronize() has done so already."""
        self._synchronizes = False
        try:
            yield
        finally:
            self._synchronizes = True

    def step(self, closure: Any = None) -> Any:
        """Waits until all gradients are reduced, and takes the optimizer's step."""
        if self._synchronizes:
            if self._was_synchronized:
                warnings.warn("optimizer.step() called without optimizer.skip_synchronize() after "
                              "optimizer.synchronize(): gradients are reduced twice")
            self._reducer.synchronize()
        self._was_synchronized = False
        return super().step(closure)

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """As the optimizer's; not while gradients are being reduced. Gradients that are views of
        the library's memory are filled with zeros."""
        self._reducer.check_idle()
        options = {} if set_to_none is None else {"set_to_none": set_to_none}
        self._reducer.zero_grad(functools.partial(super().zero_grad, **options))

    def load_state_dict(self, state_dict: dict) -> None:
        """As the optimizer's; gradients that are in flight are forgotten."""
        self._reducer.forget()
        self._was_synchronized = False
        super().load_state_dict(state_dict)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """How many backward passes add to the gradients before they are reduced."""
        self._reducer.set_passes(_checked_passes(passes))


class _AdasumDeltas(_Distributed):
    """Adasum combines what each rank's own step would change, rather than gradients: the momentum
    and learning rate of a rank then belong to its own gradients."""

    def synchronize(self) -> None:
        """Nothing: there are no reduced gradients here."""

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Not with Adasum."""
        raise AssertionError("skip_synchronize() is not for op=Adasum")
        yield  # makes it a context manager

    def step(self, closure: Any = None) -> Any:
        """Takes this rank's step, and replaces it by the combination of all ranks'."""
        reducer = self._reducer
        if not reducer.active:
            return super(_Distributed, self).step(closure)
        before = [param.detach().clone() for param in reducer.params]
        result = super(_Distributed, self).step(closure)
        handles = []
        for param, old in zip(reducer.params, before):
            delta, context = reducer.compression.compress(param.detach() - old)
            name = "deltas." + reducer.names[param]
            handles.append((allreduce_async_(delta, name, Adasum), context))
        with torch.no_grad():
            for param, old, (handle, context) in zip(reducer.params, before, handles):
                param.copy_(old + reducer.compression.decompress(complete(handle), context))
        return result


def _checked_passes(passes: int) -> int:
    if passes < 1:
        raise ValueError(f"backward_passes_per_step is {passes}, not 1 or more")
    return passes


def _check_groups(groups: Any) -> None:
    if groups is None or isinstance(groups, int):
        if groups is not None and groups < 0:
            raise ValueError("groups is a number, not less than 0, or a list of lists of "
                             "parameters")
        return
    seen: set[int] = set()
    for group in groups:
        for param in group:
            if not torch.is_tensor(param):
                raise ValueError("groups are lists of parameters")
            if id(param) in seen:
                raise ValueError("a parameter is in two groups")
            seen.add(id(param))


def DistributedOptimizer(optimizer: torch.optim.Optimizer,
                         named_parameters: Iterable[tuple[str, Parameter]] | None = None, *,
                         compression: type = Compression.none, backward_passes_per_step: int = 1,
                         op: int = Average, gradient_predivide_factor: float = 1.0,
                         groups: int | Sequence[Sequence[Parameter]] | None = None,
                         sparse_as_dense: bool = False, process_set: ProcessSet = world,
                         gradients_as_views: bool = False, codec: str | None = None) -> Any:
    """The optimizer, reducing gradients over all ranks before each step. It is of a subclass of the
    optimizer's own class and shares its parameters, options and state.

    named_parameters:         model.named_parameters(): names by which ranks match gradients. None:
                              by the order of the parameters.
    compression:              what travels: Compression.none, .fp16 or .bf16.
    backward_passes_per_step: backward passes whose gradients are added up here before they are
                              reduced.
    op:                       Average, Sum; Adasum combines the ranks' steps instead of gradients.
    gradient_predivide_factor: with Average: f divides before the sum and multiplies after it.
    groups:                   a number of groups, or lists of parameters: a group's gradients are
                              reduced together.
    sparse_as_dense:          sparse gradients are reduced as dense ones; else only rows that some
                              rank has travel.
    process_set:              the ranks that train together; on others it is the plain optimizer.
    codec:                    how dense float32 gradients travel, in fewer bytes than with a
                              compression: "int8", "topk:0.01", … (dtrain.operations).
    gradients_as_views:       param.grad lies in a gradient set of the library, and peers reduce it
                              where it lies: no copy, no names. zero_grad() then fills with zeros.
                              For dense gradients, without compression, codec and groups.

    A parameter that gets no gradient on a rank contributes zeros there.
    """
    passes = _checked_passes(backward_passes_per_step)
    _check_groups(groups)
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor is for op=Average")
    if gradients_as_views and (groups or codec or compression is not Compression.none):
        raise ValueError("gradients_as_views goes with neither compression, codec nor groups")
    deltas = op == Adasum and process_set.size() > 1
    if deltas and process_set != world:
        raise NotImplementedError("op=Adasum is for the world, not for a process set")
    base = _AdasumDeltas if deltas else _Distributed
    cls = type(type(optimizer).__name__, (base, type(optimizer)), {})
    names = named(optimizer, named_parameters)
    wrapped = cls.__new__(cls)
    # A scheduler that was made before has put a step of its own into the instance.
    wrapped.__dict__.update({key: value for key, value in vars(optimizer).items()
                             if key not in ("step", "zero_grad")})
    common = {"passes": passes, "op": op, "predivide": gradient_predivide_factor,
              "process_set": process_set}
    if gradients_as_views and not deltas:
        wrapped._reducer = SetReducer(optimizer, names, **common)
    else:
        wrapped._reducer = Reducer(optimizer, names, compression=compression, codec=codec,
                                   groups=groups, sparse_as_dense=sparse_as_dense,
                                   hooks=not deltas, **common)
    return wrapped
