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

An argument that is refused here fails the operation on the other ranks too, with the same words.
dtrain.h says all else.
"""
from __future__ import annotations

import ctypes
from typing import Any

from dtrain import _submit, errors
from dtrain._library import lib
from dtrain._submit import Group, Handle, Held
from dtrain.exchanges import (allgather, allgather_async, alltoall, alltoall_async, broadcast,
                              broadcast_async, broadcast_parameters, gather, gather_async,
                              grouped_allgather, grouped_allgather_async, recv, recv_async,
                              scatter, scatter_async, send, send_async)
from dtrain.process_sets import ProcessSet, world
from dtrain.reductions import (Adasum, Average, Max, Min, Op, Product, Sum, allreduce,
                               allreduce_async, grouped_allreduce, grouped_allreduce_async,
                               grouped_reducescatter, grouped_reducescatter_async, reduce,
                               reduce_async, reducescatter, reducescatter_async, sparse_allreduce,
                               sparse_allreduce_async)


def barrier_async(*, process_set: ProcessSet = world, timeout: float | None = None) -> Handle:
    """Submits a barrier; a rank's barriers are matched in their order."""
    opts = _submit.options(0, pset=process_set.id, timeout=timeout)
    return _submit.submit(lib.dtrain_barrier_async, None, "barrier", opts, None,
                          lambda handle: None)


def barrier(*, process_set: ProcessSet = world, timeout: float | None = None) -> None:
    """Waits until every rank of the set is here."""
    barrier_async(process_set=process_set, timeout=timeout).wait()


def join_async(*, process_set: ProcessSet = world, timeout: float | None = None) -> Handle:
    """Submits a join; the handle's result is as join's."""
    def finish(handle: Held) -> int:
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
