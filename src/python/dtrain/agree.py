"""What the ranks must agree on: when to stop, and that they hold the same values."""
from __future__ import annotations

import ctypes
from typing import Any, Iterable

from dtrain import _abi, _submit, errors
from dtrain._arrays import NUMPY
from dtrain._library import lib
from dtrain._starting import Framework
from dtrain.process_sets import ProcessSet, world


def agree_stop(wants_to: bool) -> bool:
    """Whether any rank wants to stop, so that all stop after the same step. Every rank calls it
    equally often, as once a step, with what its handler of SIGTERM has noted."""
    stops = ctypes.c_int()
    errors.check(lib.dtrain_agree_stop(int(bool(wants_to)), stops))
    return stops.value != 0


def check_equal(arrays: dict[str, Any] | Iterable[tuple[str, Any]], *,
                process_set: ProcessSet = world, timeout: float | None = None) -> None:
    """Raises Mismatch on all ranks, with the first name whose values differ and the ranks that
    differ from most, unless the named arrays are the same on all ranks, bit for bit. As parameters
    should be after an update; all ranks give the same names, shapes and types in the same order."""
    check_with(NUMPY, list(arrays.items() if isinstance(arrays, dict) else arrays), process_set,
               timeout)


def check_with(framework: Framework, pairs: list[tuple[str, Any]], process_set: ProcessSet,
               timeout: float | None) -> None:
    """The same for a framework's arrays."""
    tensors, keep, wrong = [], [], None
    for name, value in pairs:
        try:
            keep.append(framework.accept(value))
            memory = framework.readable(keep[-1])
        except (TypeError, ValueError) as error:
            # The library refuses what has no type, and tells the other ranks so.
            memory, wrong = _submit.Buffer(0, (), 0), wrong or error
        tensors.append(_submit.tensor(name, memory, None))
    n = len(tensors)
    status = lib.dtrain_check_equal((_abi.Tensor * max(n, 1))(*tensors), n,
                                    _submit.options(pset=process_set.id, timeout=timeout))
    if wrong is not None:
        raise wrong
    errors.check(status)
