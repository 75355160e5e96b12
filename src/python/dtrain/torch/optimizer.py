"""DistributedOptimizer: a torch optimizer whose gradients are reduced over all ranks.

Each gradient is submitted as soon as backward has computed it, so reducing it overlaps the rest of
the backward pass; step() waits for all of them.
"""
from __future__ import annotations

import contextlib
import logging
import warnings
import weakref
from typing import Any, Iterable, Iterator, Sequence

import torch

from dtrain import errors, lifecycle
from dtrain.objects import broadcast_object
from dtrain.operations import Adasum, Average
from dtrain.process_sets import ProcessSet, world
from dtrain.torch import memory
from dtrain.torch.compression import Compression
from dtrain.torch.operations import (allreduce_async_, grouped_allreduce_async_,
                                     sparse_allreduce_async)

_Parameter = torch.nn.Parameter


def named(optimizer: torch.optim.Optimizer,
          named_parameters: Iterable[tuple[str, _Parameter]] | None) -> dict[_Parameter, str]:
    """The name of every parameter of an optimizer. ValueError when names are missing, are given
    twice, or are no names."""
    own = [param for group in optimizer.param_groups for param in group["params"]]
    if named_parameters is None:
        return {param: f"gradient.{i}" for i, param in enumerate(own)}
    pairs = list(named_parameters)
    if any(not isinstance(pair, tuple) for pair in pairs):
        raise ValueError("named_parameters holds (name, parameter) pairs, as "
                         "model.named_parameters() gives them")
    names = [name for name, _ in pairs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"names that several parameters have: {', '.join(twice)}")
    found = {param: name for name, param in pairs}
    nameless = sum(param not in found for param in own)
    if nameless:
        raise ValueError(f"{nameless} of the optimizer's {len(own)} parameters have no name in "
                         "named_parameters")
    return found


class _InFlight:
    """What was submitted for one parameter, or for a group of them."""

    __slots__ = ("params", "handle", "contexts")

    def __init__(self, params: tuple[_Parameter, ...], handle: Any, contexts: list[Any] | None):
        self.params = params
        self.handle = handle
        self.contexts = contexts  # of the compression; None: of a sparse gradient


class _Reducer:
    """Submits gradients from hooks in the backward pass, and waits for them."""

    def __init__(self, optimizer: torch.optim.Optimizer, names: dict[_Parameter, str], *,
                 compression: type, codec: str | None, passes: int, op: int,
                 predivide: float,
                 groups: int | Sequence[Sequence[_Parameter]] | None, sparse_as_dense: bool,
                 process_set: ProcessSet, views: bool, hooks: bool):
        self.names = names
        self.compression = compression
        self.codec = codec
        self.passes = passes
        self.op = op
        self.scales = {"prescale": 1 / predivide, "postscale": predivide}
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set
        self.params = [param for group in optimizer.param_groups for param in group["params"]
                       if param.requires_grad]
        self.passes_left = {param: passes for param in names}
        self.in_flight: dict[_Parameter, _InFlight] = {}
        self.group_of: dict[_Parameter, tuple[_Parameter, ...]] = {}
        self.views: dict[_Parameter, torch.Tensor] = {}
        self.sparse: set[_Parameter] = set()  # whose gradient was sparse once
        self.warned = False
        self._hooks: list[Any] = []
        self.active = process_set.included() and process_set.size() > 1
        if self.active and hooks:
            self._form_groups(groups)
            if views:
                self._make_views()
            for param in self.params:
                self._hook(param)

    # ---- making ---------------------------------------------------------------------------

    def _hook(self, param: _Parameter) -> None:
        """Lets `_on_gradient` be called when a gradient has been added to param.grad."""
        if hasattr(param, "register_post_accumulate_grad_hook"):  # since torch 2.1
            param.register_post_accumulate_grad_hook(self._on_gradient)
            return
        node = param.expand_as(param).grad_fn.next_functions[0][0]
        node.register_hook(lambda *_: self._on_gradient(param))
        self._hooks.append(node)  # it lives only as long as somebody holds it

    def _form_groups(self, groups: int | Sequence[Sequence[_Parameter]] | None) -> None:
        """Groups travel whole. Rank 0's order of parameters is everybody's."""
        if not groups:
            return
        order = broadcast_object([self.names[param] for param in self.params],
                                 self.process_set.ranks[0], "optimizer.order",
                                 process_set=self.process_set)
        place = {name: i for i, name in enumerate(order)}
        params = sorted(self.params, key=lambda param: place[self.names[param]])
        if isinstance(groups, int):
            size, more = divmod(len(params), groups)
            ends = [size * (i + 1) + min(i + 1, more) for i in range(groups)]
            formed = [params[end - size - (i < more):end] for i, end in enumerate(ends)]
        else:
            formed = [[param for param in group if param.requires_grad] for group in groups]
        for group in formed:
            for param in group:
                self.group_of[param] = tuple(group)

    def _make_views(self) -> None:
        """Gradients in the library's memory, which peers read and write where they lie."""
        for param in self.params:
            if param.grad is not None and param.grad.is_sparse:
                continue
            view = memory.empty(param.shape, param.dtype)
            if param.grad is not None:
                view.copy_(param.grad)
            param.grad = self.views[param] = view
        lifecycle.before_shutdown(weakref.WeakMethod(self._leave_views))

    def _leave_views(self) -> None:
        """The library's memory goes with the world: gradients in it become tensors of their own."""
        for param, view in self.views.items():
            if param.grad is view:
                param.grad = view.clone()
        self.views.clear()

    # ---- submitting -------------------------------------------------------------------------

    def _on_gradient(self, param: _Parameter) -> None:
        if self.passes_left[param] <= 0 or param in self.in_flight:
            raise AssertionError(
                f"the gradient of '{self.names[param]}' was computed more than "
                f"backward_passes_per_step ({self.passes}) times before step()")
        self.passes_left[param] -= 1
        if self.passes_left[param] > 0:
            return
        group = self.group_of.get(param)
        if group is None:
            self._submit((param,))
        elif all(self.passes_left[member] <= 0 for member in group):
            self._submit(group)

    def _submit(self, params: tuple[_Parameter, ...]) -> None:
        for param in params:
            self._see_to_gradient(param)
        gradient = params[0].grad
        name = "gradients." + self.names[params[0]]
        if len(params) == 1 and gradient.is_sparse and not self.sparse_as_dense:
            handle = sparse_allreduce_async(gradient, name, self.op, process_set=self.process_set)
            entry = _InFlight(params, handle, None)
        else:
            pairs = [self.compression.compress(self._dense(param)) for param in params]
            tensors = [tensor if tensor.is_contiguous() else tensor.contiguous()
                       for tensor, _ in pairs]
            contexts = [context for _, context in pairs]
            options = {"op": self.op, "process_set": self.process_set, "codec": self.codec,
                       **self.scales}
            if params[0] in self.group_of:
                handle = grouped_allreduce_async_(tensors, name, **options)
            else:
                handle = allreduce_async_(tensors[0], name, **options)
            entry = _InFlight(params, handle, contexts)
        for param in params:
            self.in_flight[param] = entry

    def _see_to_gradient(self, param: _Parameter) -> None:
        """A parameter that was not used here contributes zeros, as other ranks may have used it."""
        if param.grad is None and param in self.sparse:
            param.grad = torch.zeros_like(param.data).to_sparse(1)
        elif param.grad is None:
            param.grad = torch.zeros_like(param.data)
        elif param.grad.is_sparse:
            self.sparse.add(param)
        view = self.views.get(param)
        if view is not None and param.grad is not view and not param.grad.is_sparse:
            param.grad = view.copy_(param.grad)

    def _dense(self, param: _Parameter) -> torch.Tensor:
        return param.grad.to_dense() if param.grad.is_sparse else param.grad

    # ---- waiting ------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Submits what backward did not, and waits until every gradient is reduced."""
        if not self.active:
            return
        missing = [param for param in self.params if param not in self.in_flight]
        unused = [self.names[param] for param in missing if self.passes_left[param] == self.passes]
        if unused and len(unused) < len(self.params) and not self.warned:
            self.warned = True
            logging.getLogger("dtrain").warning(
                "rank %d: no gradient was computed for %s%s: zeros take part in the reduction",
                lifecycle.rank(), ", ".join(unused[:5]), ", …" if len(unused) > 5 else "")
        for param in missing:
            if param not in self.in_flight:  # not with its group by now
                self._submit(self.group_of.get(param, (param,)))
        entries = list(dict.fromkeys(self.in_flight.values()))
        self.in_flight.clear()
        for param in self.passes_left:
            self.passes_left[param] = self.passes
        first: errors.Error | None = None
        for entry in entries:  # of all, so that their names are free again
            try:
                self._finish(entry)
            except errors.Error as error:
                first = first or error
        if first is not None:
            raise first

    def _finish(self, entry: _InFlight) -> None:
        results = entry.handle.wait()
        if entry.contexts is None:
            entry.params[0].grad = results
            return
        if not isinstance(results, list):
            results = [results]
        for param, result, context in zip(entry.params, results, entry.contexts):
            reduced = self.compression.decompress(result, context)
            if param.grad.is_sparse:
                param.grad = reduced.to_sparse(param.grad.sparse_dim())
            elif reduced is not param.grad:
                param.grad.copy_(reduced)

    def forget(self) -> None:
        """Starts afresh, as after load_state_dict. What is in flight is waited for: it may be
        needed on other ranks."""
        for entry in dict.fromkeys(self.in_flight.values()):
            entry.handle.wait()
        self.in_flight.clear()
        for param in self.passes_left:
            self.passes_left[param] = self.passes


class _Distributed:
    """What a DistributedOptimizer adds to the class of the optimizer that it wraps."""

    _reducer: _Reducer
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
        if self._reducer.in_flight:
            raise AssertionError("zero_grad() between backward and step() or synchronize(): "
                                 "gradients are being reduced")
        views = self._reducer.views
        if views:
            for param in self._reducer.params:
                if param.grad is not None and param.grad is views.get(param):
                    param.grad.zero_()
                else:
                    param.grad = None
        elif set_to_none is None:
            super().zero_grad()
        else:
            super().zero_grad(set_to_none=set_to_none)

    def load_state_dict(self, state_dict: dict) -> None:
        """As the optimizer's; gradients that are in flight are forgotten."""
        self._reducer.forget()
        self._was_synchronized = False
        super().load_state_dict(state_dict)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """How many backward passes add to the gradients before they are reduced."""
        self._reducer.passes = _checked_passes(passes)
        for param in self._reducer.passes_left:
            self._reducer.passes_left[param] = passes


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
                param.copy_(old + reducer.compression.decompress(handle.wait(), context))
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
                         named_parameters: Iterable[tuple[str, _Parameter]] | None = None, *,
                         compression: type = Compression.none, backward_passes_per_step: int = 1,
                         op: int = Average, gradient_predivide_factor: float = 1.0,
                         groups: int | Sequence[Sequence[_Parameter]] | None = None,
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
    gradients_as_views:       param.grad lies in the library's memory, where peers reduce it without
                              a copy. zero_grad() then fills with zeros.

    A parameter that gets no gradient on a rank contributes zeros there.
    """
    passes = _checked_passes(backward_passes_per_step)
    _check_groups(groups)
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor is for op=Average")
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
    wrapped._reducer = _Reducer(optimizer, names, compression=compression, codec=codec,
                                passes=passes, op=op, predivide=gradient_predivide_factor,
                                groups=groups, sparse_as_dense=sparse_as_dense,
                                process_set=process_set, views=gradients_as_views,
                                hooks=not deltas)
    return wrapped
