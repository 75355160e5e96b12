"""Collectives on numpy arrays that add up, or reduce otherwise. Arguments: dtrain.operations."""
from __future__ import annotations

import enum
from typing import Any, Callable, Sequence

import numpy as np

from dtrain import _abi
from dtrain._arrays import NUMPY, as_array
from dtrain._library import lib
from dtrain._starting import Call, Part, start, start_group
from dtrain._submit import Group, Handle
from dtrain.process_sets import ProcessSet, world


class Op(enum.IntEnum):
    """Reductions, as dtrain_op_t."""
    SUM = _abi.OP_SUM
    AVERAGE = _abi.OP_AVERAGE
    MIN = _abi.OP_MIN
    MAX = _abi.OP_MAX
    PRODUCT = _abi.OP_PRODUCT
    ADASUM = _abi.OP_ADASUM


Sum, Average, Min, Max, Product, Adasum = Op


def checked(out: Any, shape: tuple[int, ...], x: Any) -> Any:
    """`out`, which a result of this shape and of x's type goes to; a new array when it is None."""
    if out is None:
        return NUMPY.new(shape, x)
    if out is not x and (tuple(out.shape) != shape or as_array(out).dtype != x.dtype):
        raise ValueError(f"out is {out.dtype} {out.shape}, the result is {x.dtype} {shape}")
    return out


def like(out: Any) -> Callable[[np.ndarray], Any]:
    """The place of a result of the input's shape."""
    return lambda x: checked(out, x.shape, x)


def my_rows(out: Any, process_set: ProcessSet) -> Callable[[np.ndarray], Any]:
    """The place of this rank's rows of what has the input's shape."""
    def place(x: np.ndarray) -> Any:
        share = NUMPY.share(x, process_set)
        return share if out is None else checked(out, share.shape, x)

    return place


def allreduce_async(x: Any, name: str | None = None, op: int = Average, out: Any = None, *,
                    prescale: float = 1.0, postscale: float = 1.0, process_set: ProcessSet = world,
                    priority: int = 0, timeout: float | None = None, codec: str | None = None,
                    _blocking: bool = False) -> Handle:
    """Submits an allreduce; the handle's result is as allreduce's."""
    return start(lib.dtrain_allreduce_async, Call("allreduce", name, process_set, _blocking),
                 lambda name: NUMPY.placed(name, x, like(out)), op=op, prescale=prescale,
                 postscale=postscale, priority=priority, timeout=timeout, codec=codec)


def allreduce(x: Any, name: str | None = None, op: int = Average, out: Any = None,
              **options: Any) -> np.ndarray:
    """The reduction of all ranks' `x`, elementwise: an array of x's shape and type on every rank.
    Shape, type, op and scales must be the same on all ranks. out=x works in place."""
    return allreduce_async(x, name, op, out, _blocking=True, **options).complete()


def grouped_allreduce_async(xs: Sequence[Any], name: str | None = None, op: int = Average,
                            outs: Sequence[Any] | None = None, *, prescale: float = 1.0,
                            postscale: float = 1.0, process_set: ProcessSet = world,
                            priority: int = 0, timeout: float | None = None,
                            codec: str | None = None) -> Group:
    """Submits allreduces of several arrays as one group: all are agreed on before the first
    begins, and when one fails all do. They are named name.0, name.1, …"""
    xs = list(xs)

    def make(name: str, i: int) -> Part:
        if outs is not None and len(outs) != len(xs):
            raise ValueError(f"{len(outs)} outs for {len(xs)} arrays")
        return NUMPY.placed(name, xs[i], like(outs[i] if outs is not None else None))

    return start_group(lib.dtrain_grouped_allreduce_async,
                       Call("grouped_allreduce", name, process_set, members=len(xs)), make, op=op,
                       prescale=prescale, postscale=postscale, priority=priority, timeout=timeout,
                       codec=codec)


def grouped_allreduce(xs: Sequence[Any], name: str | None = None, op: int = Average,
                      outs: Sequence[Any] | None = None, **options: Any) -> list[np.ndarray]:
    """The reductions of several arrays, as one group: a list in the order of `xs`."""
    return grouped_allreduce_async(xs, name, op, outs, **options).complete()


def sparse_allreduce_async(indices: Any, values: Any, rows: int, name: str | None = None,
                           op: int = Average, *, prescale: float = 1.0, postscale: float = 1.0,
                           process_set: ProcessSet = world, priority: int = 0,
                           timeout: float | None = None, _blocking: bool = False) -> Handle:
    """Submits a sparse allreduce; the handle's result is as sparse_allreduce's."""
    def make(name: str) -> Part:
        if hasattr(indices, "__cuda_array_interface__"):
            raise TypeError("numbers of rows in the memory of a GPU: copy them to the host")
        where, what = np.ascontiguousarray(indices, np.int64), as_array(values)
        if where.ndim != 1 or what.ndim < 1 or len(where) != len(what):
            raise ValueError(f"indices of shape {where.shape} for values of {what.shape}")
        return NUMPY.sparse(name, rows, where, what, lambda numbers, found: (
            np.arange(len(found)) if numbers is None else numbers, found))

    return start(lib.dtrain_sparse_allreduce_async,
                 Call("sparse_allreduce", name, process_set, _blocking), make, op=op,
                 prescale=prescale, postscale=postscale, priority=priority, timeout=timeout)


def sparse_allreduce(indices: Any, values: Any, rows: int, name: str | None = None,
                     op: int = Average, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """The sum or average of tensors of `rows` rows of which each rank has some: values[i] is row
    indices[i], and rows that are not listed are zero. Returns the numbers of the rows that any rank
    had, rising, and those rows. A rank may have none."""
    return sparse_allreduce_async(indices, values, rows, name, op, _blocking=True,
                                  **options).complete()


def reduce_async(x: Any, root: int, name: str | None = None, op: int = Average, out: Any = None, *,
                 prescale: float = 1.0, postscale: float = 1.0, process_set: ProcessSet = world,
                 priority: int = 0, timeout: float | None = None,
                 _blocking: bool = False) -> Handle:
    """Submits a reduction to one rank; the handle's result is as reduce's."""
    place = like(out) if lib.dtrain_rank() == root else lambda x: None
    return start(lib.dtrain_reduce_async, Call("reduce", name, process_set, _blocking),
                 lambda name: NUMPY.placed(name, x, place), root, op=op, prescale=prescale,
                 postscale=postscale, priority=priority, timeout=timeout)


def reduce(x: Any, root: int, name: str | None = None, op: int = Average, out: Any = None,
           **options: Any) -> np.ndarray | None:
    """On rank `root` what allreduce gives; None on the others."""
    return reduce_async(x, root, name, op, out, _blocking=True, **options).complete()


def reducescatter_async(x: Any, name: str | None = None, op: int = Average, out: Any = None, *,
                        prescale: float = 1.0, postscale: float = 1.0,
                        process_set: ProcessSet = world, priority: int = 0,
                        timeout: float | None = None, _blocking: bool = False) -> Handle:
    """Submits a reduce-scatter; the handle's result is as reducescatter's."""
    return start(lib.dtrain_reducescatter_async,
                 Call("reducescatter", name, process_set, _blocking),
                 lambda name: NUMPY.placed(name, x, my_rows(out, process_set)), op=op,
                 prescale=prescale, postscale=postscale, priority=priority, timeout=timeout)


def reducescatter(x: Any, name: str | None = None, op: int = Average, out: Any = None,
                  **options: Any) -> np.ndarray:
    """This rank's rows of what allreduce gives. Of d rows each of n ranks gets d // n, and the
    first d % n ranks one more."""
    return reducescatter_async(x, name, op, out, _blocking=True, **options).complete()


def grouped_reducescatter_async(xs: Sequence[Any], name: str | None = None, op: int = Average, *,
                                prescale: float = 1.0, postscale: float = 1.0,
                                process_set: ProcessSet = world, priority: int = 0,
                                timeout: float | None = None) -> Group:
    """Submits reduce-scatters of several arrays as one group."""
    xs = list(xs)
    return start_group(lib.dtrain_grouped_reducescatter_async,
                       Call("grouped_reducescatter", name, process_set, members=len(xs)),
                       lambda name, i: NUMPY.placed(name, xs[i], my_rows(None, process_set)),
                       op=op, prescale=prescale, postscale=postscale, priority=priority,
                       timeout=timeout)


def grouped_reducescatter(xs: Sequence[Any], name: str | None = None, op: int = Average,
                          **options: Any) -> list[np.ndarray]:
    """This rank's rows of several arrays' reductions: a list in the order of `xs`."""
    return grouped_reducescatter_async(xs, name, op, **options).complete()
