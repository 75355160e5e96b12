"""Collectives on numpy arrays.

Every operation comes as a blocking function, which returns its result, and as one ending in _async,
which returns a Handle. Arguments that mean the same everywhere:

x            the input: a contiguous array, or anything that shares memory as one (buffer protocol,
             DLPack in host memory); numbers and lists become arrays. It must not be changed before
             the operation is done.
name         what operations are matched by across ranks; one name may be in flight once a rank.
             None: matched by order among the unnamed operations of its kind.
out          where the result goes: a contiguous array that can be written to; None: a new one.
             `out=x` works in place where the text says so.
op           Average (the default), Sum, Min, Max, Product, Adasum.
prescale,    factors on every input before the reduction, and on the result before it is rounded.
postscale
process_set  the ranks that take part; dtrain.world is all of them.
priority     of the operations that are ready, higher ones go first.
timeout      the operation's deadline in seconds; None: the configured one; math.inf: none.
codec        how a float32 allreduce by Sum or Average travels: "fp16", "bf16", "int8", "topk:0.01";
             what int8 and topk leave out is kept by the name and added the next time.

An argument that is refused here fails the operation on the other ranks too. dtrain.h says all else.
"""
from __future__ import annotations

import ctypes
import enum
from typing import Any, Sequence

import numpy as np

from dtrain import _abi, _arrays, _submit, errors
from dtrain._library import lib
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


def library_output(handle: int) -> tuple[int | None, tuple[int, ...]]:
    """Address and shape of an output that the library holds until the handle is released."""
    data, ndim = ctypes.c_void_p(), ctypes.c_int()
    shape = (ctypes.c_int64 * _abi.NDIM_MAX)()
    errors.check(lib.dtrain_output(handle, data, shape, ndim))
    return data.value, tuple(shape[:ndim.value])


def received_splits(handle: int, n: int) -> list[int]:
    """How many rows came from each of the set's `n` ranks."""
    splits = (ctypes.c_int64 * n)()
    errors.check(lib.dtrain_recv_splits(handle, splits, n))
    return list(splits)


def share_rows(rows: int, rank: int, size: int) -> int:
    """How many of `rows` rows a rank gets when the library shares them out."""
    return rows // size + (rank < rows % size)


class _Call:
    """One operation on its way to the library; what is wrong with it here is told to the others."""

    def __init__(self, kind: str, name: str | None, process_set: ProcessSet, blocking: bool):
        self.name = _submit.name_of(kind, name, blocking)
        self.pset = process_set.id

    def __enter__(self) -> _Call:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None and issubclass(kind, (TypeError, ValueError)) \
                and not issubclass(kind, errors.Error):
            _submit.refuse(self.name, self.pset)


def _same_shape(x: np.ndarray, out: Any) -> np.ndarray:
    """The array that an output of the input's shape goes to."""
    if out is None:
        return np.empty(x.shape, x.dtype)
    if out is not x and (out.shape != x.shape or out.dtype != x.dtype):
        raise ValueError(f"out is {out.dtype} {out.shape}, the result is {x.dtype} {x.shape}")
    return out


def _start(function: Any, call: _Call, x: np.ndarray, result: np.ndarray | None, opts: Any,
           *extra: Any) -> Handle:
    """Submits an operation whose result has a shape that is known, in `result`."""
    source = _arrays.readable(x)
    target = _arrays.writable(result).pointer if result is not None else None
    described = _submit.tensor(call.name, source.pointer, target, source.shape, source.dtype)
    return _submit.submit(function, described, call.name, opts, (x, result), lambda handle: result,
                          *extra)


def _start_group(function: Any, call: _Call, arrays: list[np.ndarray], results: list[np.ndarray],
                 opts: Any) -> Group:
    """The same for several arrays as one group, named name.0, name.1, …"""
    names = [f"{call.name}.{i}" for i in range(len(arrays))]
    tensors = []
    for name, x, result in zip(names, arrays, results):
        source = _arrays.readable(x)
        tensors.append(_submit.tensor(name, source.pointer, _arrays.writable(result).pointer,
                                      source.shape, source.dtype))
    return _submit.submit_group(function, tensors, names, opts, list(zip(arrays, results)),
                                [lambda handle, result=result: result for result in results])


def _reduction(x: Any, name: str | None, op: int, out: Any, prescale: float, postscale: float,
               process_set: ProcessSet, priority: int, timeout: float | None, codec: str | None,
               blocking: bool) -> Handle:
    with _Call("allreduce", name, process_set, blocking) as call:
        x = _arrays.as_array(x)
        opts = _submit.options(op, prescale, postscale, call.pset, priority, timeout,
                               codec)
        return _start(lib.dtrain_allreduce_async, call, x, _same_shape(x, out), opts)


def allreduce_async(x: Any, name: str | None = None, op: int = Average, out: Any = None, *,
                    prescale: float = 1.0, postscale: float = 1.0, process_set: ProcessSet = world,
                    priority: int = 0, timeout: float | None = None,
                    codec: str | None = None) -> Handle:
    """Submits an allreduce; the handle's result is as allreduce's."""
    return _reduction(x, name, op, out, prescale, postscale, process_set, priority, timeout,
                      codec, False)


def allreduce(x: Any, name: str | None = None, op: int = Average, out: Any = None, *,
              prescale: float = 1.0, postscale: float = 1.0, process_set: ProcessSet = world,
              priority: int = 0, timeout: float | None = None,
              codec: str | None = None) -> np.ndarray:
    """The reduction of all ranks' `x`, elementwise: an array of x's shape and type on every rank.
    Shape, type, op and scales must be the same on all ranks. out=x works in place."""
    return _reduction(x, name, op, out, prescale, postscale, process_set, priority, timeout,
                      codec, True).wait()


def grouped_allreduce_async(xs: Sequence[Any], name: str | None = None, op: int = Average,
                            outs: Sequence[Any] | None = None, *, prescale: float = 1.0,
                            postscale: float = 1.0, process_set: ProcessSet = world,
                            priority: int = 0, timeout: float | None = None,
                            codec: str | None = None) -> Group:
    """Submits allreduces of several arrays as one group: all are agreed on before the first
    begins, and when one fails all do. They are named name.0, name.1, …"""
    with _Call("grouped_allreduce", name, process_set, False) as call:
        arrays = [_arrays.as_array(x) for x in xs]
        results = [_same_shape(x, out) for x, out in
                   zip(arrays, outs if outs is not None else [None] * len(arrays), strict=True)]
        opts = _submit.options(op, prescale, postscale, call.pset, priority, timeout,
                               codec)
        return _start_group(lib.dtrain_grouped_allreduce_async, call, arrays, results, opts)


def grouped_allreduce(xs: Sequence[Any], name: str | None = None, op: int = Average,
                      outs: Sequence[Any] | None = None, **options: Any) -> list[np.ndarray]:
    """The reductions of several arrays, as one group: a list in the order of `xs`."""
    return grouped_allreduce_async(xs, name, op, outs, **options).wait()


def sparse_allreduce_async(indices: Any, values: Any, rows: int, name: str | None = None,
                           op: int = Average, *, prescale: float = 1.0, postscale: float = 1.0,
                           process_set: ProcessSet = world, priority: int = 0,
                           timeout: float | None = None, _blocking: bool = False) -> Handle:
    """Submits a sparse allreduce; the handle's result is as sparse_allreduce's."""
    with _Call("sparse_allreduce", name, process_set, _blocking) as call:
        indices = np.ascontiguousarray(indices, np.int64)
        values = _arrays.as_array(values)
        source = _arrays.readable(values)
        if indices.ndim != 1 or values.ndim < 1 or len(indices) != len(values):
            raise ValueError(f"indices of shape {indices.shape} for values of {values.shape}")
        opts = _submit.options(op, prescale, postscale, call.pset, priority, timeout)
        described = _submit.sparse(call.name, (rows,) + values.shape[1:],
                                   indices.__array_interface__["data"][0], source.pointer,
                                   len(indices), source.dtype)

    def finish(handle: int) -> tuple[np.ndarray, np.ndarray]:
        where, what, nnz = _submit.sparse_output(handle)
        numbers = np.arange(nnz) if where is None else np.empty(nnz, np.int64)
        if where is not None:
            ctypes.memmove(numbers.ctypes.data, where, numbers.nbytes)
        result = np.empty((nnz,) + values.shape[1:], values.dtype)
        if result.nbytes:
            ctypes.memmove(result.ctypes.data, what, result.nbytes)
        return numbers, result

    return _submit.submit(lib.dtrain_sparse_allreduce_async, described, call.name, opts,
                          (indices, values), finish)


def sparse_allreduce(indices: Any, values: Any, rows: int, name: str | None = None,
                     op: int = Average, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """The sum or average of tensors of `rows` rows of which each rank has some: values[i] is row
    indices[i], and rows that are not listed are zero. Returns the numbers of the rows that any rank
    had, rising, and those rows. A rank may have none."""
    return sparse_allreduce_async(indices, values, rows, name, op, _blocking=True,
                                  **options).wait()


def broadcast_async(x: Any, root: int, name: str | None = None, out: Any = None, *,
                    process_set: ProcessSet = world, priority: int = 0,
                    timeout: float | None = None, _blocking: bool = False) -> Handle:
    """Submits a broadcast; the handle's result is as broadcast's."""
    with _Call("broadcast", name, process_set, _blocking) as call:
        x = _arrays.as_array(x)
        opts = _submit.options(0, pset=call.pset, priority=priority, timeout=timeout)
        return _start(lib.dtrain_broadcast_async, call, x, _same_shape(x, out), opts, root)


def broadcast(x: Any, root: int, name: str | None = None, out: Any = None,
              **options: Any) -> np.ndarray:
    """Rank `root`'s `x`, on every rank. Elsewhere x gives shape and type only. out=x works in
    place. `root` is a rank of the world."""
    return broadcast_async(x, root, name, out, _blocking=True, **options).wait()


def reduce_async(x: Any, root: int, name: str | None = None, op: int = Average, out: Any = None, *,
                 prescale: float = 1.0, postscale: float = 1.0, process_set: ProcessSet = world,
                 priority: int = 0, timeout: float | None = None,
                 _blocking: bool = False) -> Handle:
    """Submits a reduction to one rank; the handle's result is as reduce's."""
    with _Call("reduce", name, process_set, _blocking) as call:
        x = _arrays.as_array(x)
        opts = _submit.options(op, prescale, postscale, call.pset, priority, timeout)
        result = _same_shape(x, out) if _is_root(root) else None
        return _start(lib.dtrain_reduce_async, call, x, result, opts, root)


def reduce(x: Any, root: int, name: str | None = None, op: int = Average, out: Any = None,
           **options: Any) -> np.ndarray | None:
    """On rank `root` what allreduce gives; None on the others."""
    return reduce_async(x, root, name, op, out, _blocking=True, **options).wait()


def _is_root(root: int) -> bool:
    return lib.dtrain_rank() == root


def _my_rows(x: np.ndarray, process_set: ProcessSet, out: Any) -> np.ndarray:
    """The array for this rank's rows of a tensor of x's shape."""
    # What has no rows is refused by the library.
    rows = share_rows(x.shape[0], process_set.rank(), process_set.size()) if x.ndim else 0
    shape = (rows,) + x.shape[1:]
    if out is None:
        return np.empty(shape, x.dtype)
    if out.shape != shape or out.dtype != x.dtype:
        raise ValueError(f"out is {out.dtype} {out.shape}, the result is {x.dtype} {shape}")
    return out


def reducescatter_async(x: Any, name: str | None = None, op: int = Average, out: Any = None, *,
                        prescale: float = 1.0, postscale: float = 1.0,
                        process_set: ProcessSet = world, priority: int = 0,
                        timeout: float | None = None, _blocking: bool = False) -> Handle:
    """Submits a reduce-scatter; the handle's result is as reducescatter's."""
    with _Call("reducescatter", name, process_set, _blocking) as call:
        x = _arrays.as_array(x)
        opts = _submit.options(op, prescale, postscale, call.pset, priority, timeout)
        return _start(lib.dtrain_reducescatter_async, call, x, _my_rows(x, process_set, out), opts)


def reducescatter(x: Any, name: str | None = None, op: int = Average, out: Any = None,
                  **options: Any) -> np.ndarray:
    """This rank's rows of what allreduce gives. Of d rows each of n ranks gets d // n, and the
    first d % n ranks one more."""
    return reducescatter_async(x, name, op, out, _blocking=True, **options).wait()


def grouped_reducescatter_async(xs: Sequence[Any], name: str | None = None, op: int = Average, *,
                                prescale: float = 1.0, postscale: float = 1.0,
                                process_set: ProcessSet = world, priority: int = 0,
                                timeout: float | None = None) -> Group:
    """Submits reduce-scatters of several arrays as one group."""
    with _Call("grouped_reducescatter", name, process_set, False) as call:
        arrays = [_arrays.as_array(x) for x in xs]
        results = [_my_rows(x, process_set, None) for x in arrays]
        opts = _submit.options(op, prescale, postscale, call.pset, priority, timeout)
        return _start_group(lib.dtrain_grouped_reducescatter_async, call, arrays, results, opts)


def grouped_reducescatter(xs: Sequence[Any], name: str | None = None, op: int = Average,
                          **options: Any) -> list[np.ndarray]:
    """This rank's rows of several arrays' reductions: a list in the order of `xs`."""
    return grouped_reducescatter_async(xs, name, op, **options).wait()


def _copy_of_output(handle: int, dtype: np.dtype) -> np.ndarray:
    """A new array with what the library holds; its own memory does not outlive the world."""
    address, shape = library_output(handle)
    result = np.empty(shape, dtype)
    if result.nbytes:
        ctypes.memmove(result.ctypes.data, address, result.nbytes)
    return result


def _gathering(x: Any, out: Any, call: _Call, priority: int,
               timeout: float | None) -> tuple[_abi.Tensor, Any, Any, Any]:
    """Tensor, options, buffers and end of an operation whose rows are known when it is done."""
    x = _arrays.as_array(x)
    source = _arrays.readable(x)
    pointer, room = None, 0
    if out is not None:
        if out.dtype != x.dtype:
            raise ValueError(f"out is {out.dtype}, the result is {x.dtype}")
        pointer, room = _arrays.writable(out).pointer, out.nbytes

    def finish(handle: int) -> np.ndarray:
        if out is None:
            return _copy_of_output(handle, x.dtype)
        _, shape = library_output(handle)
        count = int(np.prod(shape, dtype=np.int64))
        return out.reshape(-1)[:count].reshape(shape)

    opts = _submit.options(0, pset=call.pset, priority=priority, timeout=timeout)
    described = _submit.tensor(call.name, source.pointer, pointer, source.shape, source.dtype, room)
    return described, opts, (x, out), finish


def allgather_async(x: Any, name: str | None = None, out: Any = None, *,
                    process_set: ProcessSet = world, priority: int = 0,
                    timeout: float | None = None, _blocking: bool = False) -> Handle:
    """Submits an allgather; the handle's result is as allgather's."""
    with _Call("allgather", name, process_set, _blocking) as call:
        described, opts, keep, finish = _gathering(x, out, call, priority, timeout)
    return _submit.submit(lib.dtrain_allgather_async, described, call.name, opts, keep, finish)


def allgather(x: Any, name: str | None = None, out: Any = None, **options: Any) -> np.ndarray:
    """The rows of all ranks' `x` in rank order. The first extent may differ by rank, and be 0;
    there is at least one dimension. `out` has room for the result, which is then a view of it."""
    return allgather_async(x, name, out, _blocking=True, **options).wait()


def grouped_allgather_async(xs: Sequence[Any], name: str | None = None, *,
                            process_set: ProcessSet = world, priority: int = 0,
                            timeout: float | None = None) -> Group:
    """Submits allgathers of several arrays as one group."""
    tensors, keeps, finishes, names, opts = [], [], [], [], None
    with _Call("grouped_allgather", name, process_set, False) as call:
        base = call.name
        for i, x in enumerate(xs):
            call.name = f"{base}.{i}"
            described, opts, keep, finish = _gathering(x, None, call, priority, timeout)
            tensors.append(described)
            keeps.append(keep)
            finishes.append(finish)
            names.append(call.name)
    return _submit.submit_group(lib.dtrain_grouped_allgather_async, tensors, names, opts, keeps,
                                finishes)


def grouped_allgather(xs: Sequence[Any], name: str | None = None,
                      **options: Any) -> list[np.ndarray]:
    """The gathered rows of several arrays: a list in the order of `xs`."""
    return grouped_allgather_async(xs, name, **options).wait()


def gather_async(x: Any, root: int, name: str | None = None, out: Any = None, *,
                 process_set: ProcessSet = world, priority: int = 0,
                 timeout: float | None = None, _blocking: bool = False) -> Handle:
    """Submits a gather; the handle's result is as gather's."""
    with _Call("gather", name, process_set, _blocking) as call:
        described, opts, keep, finish = _gathering(x, out if _is_root(root) else None, call,
                                                   priority, timeout)
    if not _is_root(root):
        finish = _nothing
    return _submit.submit(lib.dtrain_gather_async, described, call.name, opts, keep, finish, root)


def _nothing(handle: int) -> None:
    return None


def gather(x: Any, root: int, name: str | None = None, out: Any = None,
           **options: Any) -> np.ndarray | None:
    """On rank `root` the rows of all ranks' `x` in rank order; None on the others."""
    return gather_async(x, root, name, out, _blocking=True, **options).wait()


def scatter_async(x: Any, root: int, name: str | None = None, out: Any = None, *,
                  process_set: ProcessSet = world, priority: int = 0,
                  timeout: float | None = None, _blocking: bool = False) -> Handle:
    """Submits a scatter; the handle's result is as scatter's."""
    with _Call("scatter", name, process_set, _blocking) as call:
        x = _arrays.as_array(x)
        opts = _submit.options(0, pset=call.pset, priority=priority, timeout=timeout)
        return _start(lib.dtrain_scatter_async, call, x, _my_rows(x, process_set, out), opts, root)


def scatter(x: Any, root: int, name: str | None = None, out: Any = None,
            **options: Any) -> np.ndarray:
    """This rank's rows of rank `root`'s `x`, shared out as by reducescatter. Elsewhere x gives the
    whole tensor's shape and type only."""
    return scatter_async(x, root, name, out, _blocking=True, **options).wait()


def alltoall_async(x: Any, splits: Sequence[int] | None = None, name: str | None = None,
                   out: Any = None, *, process_set: ProcessSet = world, priority: int = 0,
                   timeout: float | None = None, _blocking: bool = False) -> Handle:
    """Submits an all-to-all; the handle's result is as alltoall's."""
    with _Call("alltoall", name, process_set, _blocking) as call:
        n = process_set.size() if process_set.included() else 0
        described, opts, keep, finish_rows = _gathering(x, out, call, priority, timeout)
        counts = None
        if splits is not None:
            counts = (ctypes.c_int64 * len(splits))(*[int(split) for split in splits])

    def finish(handle: int) -> tuple[np.ndarray, list[int]]:
        return finish_rows(handle), received_splits(handle, n)

    return _submit.submit(lib.dtrain_alltoall_async, described, call.name, opts, keep, finish,
                          counts, len(counts) if counts is not None else 0)


def alltoall(x: Any, splits: Sequence[int] | None = None, name: str | None = None, out: Any = None,
             **options: Any) -> tuple[np.ndarray, list[int]]:
    """Sends splits[r] rows of `x` to rank r, behind those for lower ranks; returns what came from
    all ranks in rank order, and how many rows came from each. `splits` None: the same for each."""
    return alltoall_async(x, splits, name, out, _blocking=True, **options).wait()


def send_async(x: Any, peer: int, name: str, *, process_set: ProcessSet = world,
               priority: int = 0, timeout: float | None = None) -> Handle:
    """Submits a send of `x` to rank `peer`, which must receive the same name, shape and type."""
    with _Call("send", name, process_set, False) as call:
        x = _arrays.as_array(x)
        source = _arrays.readable(x)
        opts = _submit.options(0, pset=call.pset, priority=priority, timeout=timeout)
        described = _submit.tensor(call.name, source.pointer, None, source.shape, source.dtype)
    return _submit.submit(lib.dtrain_send_async, described, call.name, opts, x, _nothing, peer)


def send(x: Any, peer: int, name: str, **options: Any) -> None:
    """Sends `x` to rank `peer`, and waits until it is there."""
    send_async(x, peer, name, **options).wait()


def recv_async(out: Any, peer: int, name: str, *, process_set: ProcessSet = world,
               priority: int = 0, timeout: float | None = None) -> Handle:
    """Submits a receive into `out` from rank `peer`; the handle's result is `out`."""
    with _Call("recv", name, process_set, False) as call:
        target = _arrays.writable(out)
        opts = _submit.options(0, pset=call.pset, priority=priority, timeout=timeout)
        described = _submit.tensor(call.name, None, target.pointer, target.shape, target.dtype)
    return _submit.submit(lib.dtrain_recv_async, described, call.name, opts, out,
                          lambda handle: out, peer)


def recv(out: Any, peer: int, name: str, **options: Any) -> Any:
    """Receives into `out` what rank `peer` sends under this name, and returns it."""
    return recv_async(out, peer, name, **options).wait()


def barrier_async(*, process_set: ProcessSet = world, timeout: float | None = None) -> Handle:
    """Submits a barrier; a rank's barriers are matched in their order."""
    opts = _submit.options(0, pset=process_set.id, timeout=timeout)
    return _submit.submit(lib.dtrain_barrier_async, None, "barrier", opts, None, _nothing)


def barrier(*, process_set: ProcessSet = world, timeout: float | None = None) -> None:
    """Waits until every rank of the set is here."""
    barrier_async(process_set=process_set, timeout=timeout).wait()


def join_async(*, process_set: ProcessSet = world, timeout: float | None = None) -> Handle:
    """Submits a join; the handle's result is as join's."""
    def finish(handle: int) -> int:
        last = ctypes.c_int()
        errors.check(lib.dtrain_join_last_rank(handle, last))
        return last.value

    opts = _submit.options(0, pset=process_set.id, timeout=timeout)
    return _submit.submit(lib.dtrain_join_async, None, "join", opts, None, finish)


def join(*, process_set: ProcessSet = world, timeout: float | None = None) -> int:
    """Says that this rank has no more data: others' operations go on without it. Waits until every
    rank has joined, and returns the one that was last."""
    return join_async(process_set=process_set, timeout=timeout).wait()


def poll(handle: Handle | Group) -> bool:
    """Whether an operation is done. Does not block."""
    return handle.done()


def wait(handle: Handle | Group, timeout: float | None = None) -> Any:
    """The result of an operation, once it is done; raises its error."""
    return handle.wait(timeout)
