"""What the ranks must agree on: when to stop, and that they hold the same values."""
from __future__ import annotations

import ctypes
from typing import Any, Iterable

from dtrain import _abi, _arrays, _submit, errors
from dtrain._library import lib
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
    pairs = list(arrays.items() if isinstance(arrays, dict) else arrays)
    check_buffers([(name, _arrays.readable(_arrays.as_array(array))) for name, array in pairs],
                  process_set, timeout)


def check_buffers(buffers: list[tuple[str, _arrays.Buffer]], process_set: ProcessSet,
                  timeout: float | None) -> None:
    """The same for memory that was looked up."""
    tensors = [_submit.tensor(name, buffer.pointer, None, buffer.shape, buffer.dtype)
               for name, buffer in buffers]
    n = len(tensors)
    errors.check(lib.dtrain_check_equal((_abi.Tensor * max(n, 1))(*tensors), n,
                                        _submit.options(pset=process_set.id, timeout=timeout)))
