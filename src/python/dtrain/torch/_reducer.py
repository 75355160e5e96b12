"""Gradients of a torch optimizer, submitted one by one or in groups from the backward pass."""
from __future__ import annotations

import logging
from typing import Any, Callable, Iterable, Sequence

import torch

from dtrain import errors, lifecycle
from dtrain.objects import broadcast_object
from dtrain.process_sets import ProcessSet
from dtrain.torch._tensors import complete
from dtrain.torch.plain import (allreduce_async_, grouped_allreduce_async_,
                                sparse_allreduce_async)

Parameter = torch.nn.Parameter


def named(optimizer: torch.optim.Optimizer,
          named_parameters: Iterable[tuple[str, Parameter]] | None) -> dict[Parameter, str]:
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


class InFlight:
    """What was submitted for one parameter, or for a group of them."""

    __slots__ = ("params", "handle", "contexts")

    def __init__(self, params: tuple[Parameter, ...], handle: Any, contexts: list[Any] | None):
        self.params = params
        self.handle = handle
        self.contexts = contexts  # of the compression; None: of a sparse gradient


class Hooks:
    """Lets `on_gradient` be called for each gradient of a backward pass."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._said = False

    def hook(self, params: Iterable[Parameter]) -> None:
        """Lets `on_gradient` be called when a gradient has been added to param.grad."""
        for param in params:
            if hasattr(param, "register_post_accumulate_grad_hook"):  # since torch 2.1
                param.register_post_accumulate_grad_hook(self.on_gradient)
                continue
            node = param.expand_as(param).grad_fn.next_functions[0][0]
            node.register_hook(lambda *_, param=param: self.on_gradient(param))
            self._nodes.append(node)  # it lives only as long as somebody holds it

    def on_gradient(self, param: Parameter) -> None:
        """A gradient is there."""
        raise NotImplementedError

    def check_idle(self) -> None:
        """AssertionError while gradients are being reduced."""
        if self.is_busy:
            raise AssertionError("zero_grad() between backward and step() or synchronize(): "
                                 "gradients are being reduced")

    @property
    def is_busy(self) -> bool:
        """Whether gradients are being reduced."""
        raise NotImplementedError

    def say_unused(self, names: list[str], total: int) -> None:
        """Says once which parameters got no gradient, unless that is all of them."""
        if names and len(names) < total and not self._said:
            self._said = True
            logging.getLogger("dtrain").warning(
                "rank %d: no gradient was computed for %s%s: zeros take part in the reduction",
                lifecycle.rank(), ", ".join(names[:5]), ", …" if len(names) > 5 else "")


def too_many_passes(name: str, passes: int) -> AssertionError:
    """What a backward pass too many is told."""
    return AssertionError(f"the gradient of '{name}' was computed more than "
                          f"backward_passes_per_step ({passes}) times before step()")


class Reducer(Hooks):
    """Submits gradients from hooks in the backward pass, and waits for them."""

    def __init__(self, optimizer: torch.optim.Optimizer, names: dict[Parameter, str], *,
                 compression: type, codec: str | None, passes: int, op: int,
                 predivide: float,
                 groups: int | Sequence[Sequence[Parameter]] | None, sparse_as_dense: bool,
                 process_set: ProcessSet, hooks: bool):
        super().__init__()
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
        self.in_flight: dict[Parameter, InFlight] = {}
        self.group_of: dict[Parameter, tuple[Parameter, ...]] = {}
        self.sparse: set[Parameter] = set()  # whose gradient was sparse once
        self.active = process_set.included() and process_set.size() > 1
        if self.active and hooks:
            self._form_groups(groups)
            self.hook(self.params)

    # ---- making ---------------------------------------------------------------------------

    def _form_groups(self, groups: int | Sequence[Sequence[Parameter]] | None) -> None:
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

    # ---- submitting -------------------------------------------------------------------------

    def on_gradient(self, param: Parameter) -> None:
        if self.passes_left[param] <= 0 or param in self.in_flight:
            raise too_many_passes(self.names[param], self.passes)
        self.passes_left[param] -= 1
        if self.passes_left[param] > 0:
            return
        group = self.group_of.get(param)
        if group is None:
            self._submit((param,))
        elif all(self.passes_left[member] <= 0 for member in group):
            self._submit(group)

    def _submit(self, params: tuple[Parameter, ...]) -> None:
        for param in params:
            self._see_to_gradient(param)
        gradient = params[0].grad
        name = "gradients." + self.names[params[0]]
        if len(params) == 1 and gradient.is_sparse and not self.sparse_as_dense:
            handle = sparse_allreduce_async(gradient, name, self.op, process_set=self.process_set)
            entry = InFlight(params, handle, None)
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
            entry = InFlight(params, handle, contexts)
        for param in params:
            self.in_flight[param] = entry

    def _see_to_gradient(self, param: Parameter) -> None:
        """A parameter that was not used here contributes zeros, as other ranks may have used it."""
        if param.grad is None and param in self.sparse:
            param.grad = torch.zeros_like(param.data).to_sparse(1)
        elif param.grad is None:
            param.grad = torch.zeros_like(param.data)
        elif param.grad.is_sparse:
            self.sparse.add(param)

    def _dense(self, param: Parameter) -> torch.Tensor:
        return param.grad.to_dense() if param.grad.is_sparse else param.grad

    @property
    def is_busy(self) -> bool:
        """Whether gradients are being reduced."""
        return bool(self.in_flight)

    def set_passes(self, passes: int) -> None:
        """How many backward passes add to a gradient before it is reduced."""
        self.passes = passes
        for param in self.passes_left:
            self.passes_left[param] = passes

    def zero_grad(self, plain: Callable[[], None]) -> None:
        """Gradients are the program's own: what the optimizer does."""
        plain()

    # ---- waiting ------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Submits what backward did not, and waits until every gradient is reduced."""
        if not self.active:
            return
        missing = [param for param in self.params if param not in self.in_flight]
        self.say_unused([self.names[param] for param in missing
                         if self.passes_left[param] == self.passes], len(self.params))
        for param in missing:
            if param not in self.in_flight:  # not with its group by now
                self._submit(self.group_of.get(param, (param,)))
        entries = list(dict.fromkeys(self.in_flight.values()))
        self.in_flight.clear()
        self.set_passes(self.passes)
        first: errors.Error | None = None
        for entry in entries:  # of all, so that their names are free again
            try:
                self._finish(entry)
            except errors.Error as error:
                first = first or error
        if first is not None:
            raise first

    def _finish(self, entry: InFlight) -> None:
        results = complete(entry.handle)
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
        self.set_passes(self.passes)
