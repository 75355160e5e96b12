"""How a call becomes an operation of the library: what numpy's arrays and torch's tensors have in
common.

What is wrong with an argument is found here, before the library sees it. Then the other ranks are
told, and their operation of that name fails with this rank's words instead of waiting.
"""
from __future__ import annotations

import ctypes
import math
import operator
from typing import Any, Callable, NamedTuple, Sequence

from dtrain import _abi, _submit, errors
from dtrain._library import lib
from dtrain._submit import Buffer, Group, Handle, Held
from dtrain.process_sets import ProcessSet


class Part(NamedTuple):
    """What the library is given for one operation, and what becomes of its end."""
    described: Any                 # a dtrain_tensor_t or dtrain_sparse_t
    keep: Any                      # what holds its buffers
    finish: Callable[[Held], Any]  # makes the result, when it is there or a stream waits for it


class Call:
    """One operation, or a group of `members`, named name.0, name.1, … What is raised in
    `with call:` is told to the other ranks of the set."""

    __slots__ = ("kind", "name", "members", "pset")

    def __init__(self, kind: str, name: str | None, process_set: ProcessSet,
                 blocking: bool = False, members: int | None = None):
        self.kind = kind
        self.name = _submit.name_of(kind, name, blocking)
        self.members = members
        self.pset = process_set.id

    def names(self) -> list[str]:
        """The operations' names."""
        if self.members is None:
            return [self.name]
        return [f"{self.name}.{i}" for i in range(self.members)]

    def __enter__(self) -> Call:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, Exception):
            _submit.refuse(self.names(), self.pset, f"{self.kind} '{self.name}': {error}")


def start(function: Callable[..., int], call: Call, make: Callable[[str], Part], *extra: Any,
          **options: Any) -> Handle:
    """Submits the operation that `make(name)` describes by one of the library's …_async functions.
    `extra` goes between tensor and options, which are those of _submit.options."""
    with call:
        part = make(call.name)
        opts = _submit.options(pset=call.pset, **options)
    return _submit.submit(function, part.described, call.name, opts, part.keep, part.finish, *extra)


def start_group(function: Callable[..., int], call: Call, make: Callable[[str, int], Part],
                **options: Any) -> Group:
    """The same for a group, of which `make(name, i)` describes member i."""
    names = call.names()
    with call:
        parts = [make(name, i) for i, name in enumerate(names)]
        opts = _submit.options(pset=call.pset, **options)
    described, keeps, finishes = zip(*parts) if parts else ((), (), ())
    return _submit.submit_group(function, described, names, opts, keeps, finishes)


class Framework:
    """The arrays of a framework. A subclass says how they are read, written to and made."""

    def accept(self, x: Any) -> Any:
        """An argument as an array."""
        return x

    def readable(self, array: Any) -> Buffer:
        """The memory of an input. TypeError or ValueError where it cannot be sent."""
        raise NotImplementedError

    def writable(self, array: Any) -> Buffer:
        """The memory of an output."""
        raise NotImplementedError

    def new(self, shape: Sequence[int], like: Any) -> Any:
        """An array of a shape, of the type of another and in the same kind of memory."""
        raise NotImplementedError

    def placed(self, name: str, x: Any, place: Callable[[Any], Any]) -> Part:
        """An operation on `x` whose result is the array `place(x)`, or nothing when that is None."""
        x = self.accept(x)
        result = place(x)
        target = self.writable(result) if result is not None else None
        source = target if result is x else self.readable(x)
        return Part(_submit.tensor(name, source, target), (x, result), lambda handle: result)

    def gathered(self, name: str, x: Any, out: Any = None) -> Part:
        """One whose result has as many rows as come. They go to the start of `out`, or to a new
        array."""
        x = self.accept(x)
        source, target = self.readable(x), None
        if out is not None:
            target = self.writable(out)
            if target.dtype != source.dtype:
                raise ValueError(f"out is {out.dtype}, the result is {x.dtype}")

        def finish(handle: Held) -> Any:
            address, shape = library_output(handle)
            if out is not None:
                return self.leading(out, shape)
            return self.lent(address, shape, x, handle) if source.device else \
                self.copied(address, shape, x)

        room = target.nbytes if target is not None else 0
        return Part(_submit.tensor(name, source, target, room), (x, out), finish)

    def swapped(self, name: str, x: Any, process_set: ProcessSet, out: Any,
                received: Callable[[list[int]], Any]) -> Part:
        """An all-to-all: its result goes with what `received` makes of the rows from each rank."""
        n = process_set.size() if process_set.included() else 0
        rows = self.gathered(name, x, out)
        return rows._replace(finish=lambda handle: (rows.finish(handle),
                                                    received(received_splits(handle, n))))

    def sparse(self, name: str, rows: int, indices: Any, values: Any,
               result: Callable[[Any, Any], Any]) -> Part:
        """A tensor of `rows` rows of which `values` are those with the numbers `indices`; its
        result is made of the numbers, None for all, and the rows that any rank had."""
        where, what = self.readable(indices), self.readable(values)
        if where.device or what.device:
            raise TypeError("rows of a sparse tensor in the memory of a GPU: copy them to the host")

        def finish(handle: Held) -> Any:
            found, data, nnz = _submit.sparse_output(handle)
            numbers = None if found is None else self.copied(found, (nnz,), indices)
            return result(numbers, self.copied(data, (nnz,) + what.shape[1:], values))

        described = _submit.sparse(name, (rows,) + what.shape[1:], where.pointer, what.pointer,
                                   where.shape[0], what.dtype)
        return Part(described, (indices, values), finish)

    def share(self, x: Any, process_set: ProcessSet) -> Any:
        """An array for this rank's rows of a tensor of x's shape."""
        # What has no rows is refused by the library.
        rows = share_rows(x.shape[0], process_set.rank(), process_set.size()) if x.ndim else 0
        return self.new((rows,) + tuple(x.shape[1:]), x)

    def leading(self, out: Any, shape: Sequence[int]) -> Any:
        """The first elements of `out`, as an array of a shape."""
        return out.reshape(-1)[:math.prod(shape)].reshape(shape)

    def lent(self, address: int | None, shape: Sequence[int], like: Any, held: Held) -> Any:
        """An array of what the library holds in the memory of a GPU, which the array holds then."""
        raise NotImplementedError

    def copied(self, address: int | None, shape: Sequence[int], like: Any) -> Any:
        """A new array with what the library holds; its own memory does not outlive the world."""
        result = self.new(shape, like)
        target = self.writable(result)
        if target.nbytes:
            ctypes.memmove(target.pointer, address, target.nbytes)
        return result


def library_output(handle: Held) -> tuple[int | None, tuple[int, ...]]:
    """Address and shape of an output that the library holds until the handle is released."""
    data, ndim = ctypes.c_void_p(), ctypes.c_int()
    shape = (ctypes.c_int64 * _abi.NDIM_MAX)()
    errors.check(lib.dtrain_output(handle, data, shape, ndim))
    return data.value, tuple(shape[:ndim.value])


def received_splits(handle: Held, n: int) -> list[int]:
    """How many rows came from each of the set's `n` ranks."""
    splits = (ctypes.c_int64 * n)()
    errors.check(lib.dtrain_recv_splits(handle, splits, n))
    return list(splits)


def split_counts(splits: Any) -> Any:
    """Numbers of rows for the library; None stays None."""
    if splits is None:
        return None
    try:
        counts = [operator.index(split) for split in
                  (splits.tolist() if hasattr(splits, "tolist") else splits)]
    except TypeError:
        raise ValueError(f"splits are {splits}, not a list of integers") from None
    return (ctypes.c_int64 * len(counts))(*counts)


def share_rows(rows: int, rank: int, size: int) -> int:
    """How many of `rows` rows a rank gets when the library shares them out."""
    return rows // size + (rank < rows % size)
