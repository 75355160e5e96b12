"""Collectives on numpy arrays that bring values from rank to rank, and transfers between two.
Arguments: dtrain.operations."""
from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from dtrain import _submit
from dtrain._arrays import NUMPY, writable
from dtrain._library import lib
from dtrain._starting import Call, Part, split_counts, start, start_group
from dtrain._submit import Group, Handle
from dtrain.process_sets import ProcessSet, world
from dtrain.reductions import like, my_rows


def broadcast_async(x: Any, root: int, name: str | None = None, out: Any = None, *,
                    process_set: ProcessSet = world, priority: int = 0,
                    timeout: float | None = None, _blocking: bool = False) -> Handle:
    """Submits a broadcast; the handle's result is as broadcast's."""
    return start(lib.dtrain_broadcast_async, Call("broadcast", name, process_set, _blocking),
                 lambda name: NUMPY.placed(name, x, like(out)), root, priority=priority,
                 timeout=timeout)


def broadcast(x: Any, root: int, name: str | None = None, out: Any = None,
              **options: Any) -> np.ndarray:
    """Rank `root`'s `x`, on every rank. Elsewhere x gives shape and type only. out=x works in
    place. `root` is a rank of the world."""
    return broadcast_async(x, root, name, out, _blocking=True, **options).complete()


def broadcast_parameters(arrays: dict[str, Any], root: int = 0, *,
                         process_set: ProcessSet = world) -> None:
    """Replaces arrays by rank `root`'s, in place; all ranks give the same names, shapes and types."""
    handles = [broadcast_async(x, root, f"parameters.{name}", x, process_set=process_set)
               for name, x in arrays.items()]
    Group(handles).wait()


def allgather_async(x: Any, name: str | None = None, out: Any = None, *,
                    process_set: ProcessSet = world, priority: int = 0,
                    timeout: float | None = None, _blocking: bool = False) -> Handle:
    """Submits an allgather; the handle's result is as allgather's."""
    return start(lib.dtrain_allgather_async, Call("allgather", name, process_set, _blocking),
                 lambda name: NUMPY.gathered(name, x, out), priority=priority, timeout=timeout)


def allgather(x: Any, name: str | None = None, out: Any = None, **options: Any) -> np.ndarray:
    """The rows of all ranks' `x` in rank order. The first extent may differ by rank, and be 0;
    there is at least one dimension. `out` has room for the result, which is then a view of it."""
    return allgather_async(x, name, out, _blocking=True, **options).complete()


def grouped_allgather_async(xs: Sequence[Any], name: str | None = None, *,
                            process_set: ProcessSet = world, priority: int = 0,
                            timeout: float | None = None) -> Group:
    """Submits allgathers of several arrays as one group."""
    xs = list(xs)
    return start_group(lib.dtrain_grouped_allgather_async,
                       Call("grouped_allgather", name, process_set, members=len(xs)),
                       lambda name, i: NUMPY.gathered(name, xs[i]), priority=priority,
                       timeout=timeout)


def grouped_allgather(xs: Sequence[Any], name: str | None = None,
                      **options: Any) -> list[np.ndarray]:
    """The gathered rows of several arrays: a list in the order of `xs`."""
    return grouped_allgather_async(xs, name, **options).complete()


def gather_async(x: Any, root: int, name: str | None = None, out: Any = None, *,
                 process_set: ProcessSet = world, priority: int = 0,
                 timeout: float | None = None, _blocking: bool = False) -> Handle:
    """Submits a gather; the handle's result is as gather's."""
    is_root = lib.dtrain_rank() == root

    def make(name: str) -> Part:
        return NUMPY.gathered(name, x, out) if is_root else NUMPY.placed(name, x, lambda x: None)

    return start(lib.dtrain_gather_async, Call("gather", name, process_set, _blocking), make, root,
                 priority=priority, timeout=timeout)


def gather(x: Any, root: int, name: str | None = None, out: Any = None,
           **options: Any) -> np.ndarray | None:
    """On rank `root` the rows of all ranks' `x` in rank order; None on the others."""
    return gather_async(x, root, name, out, _blocking=True, **options).complete()


def scatter_async(x: Any, root: int, name: str | None = None, out: Any = None, *,
                  process_set: ProcessSet = world, priority: int = 0,
                  timeout: float | None = None, _blocking: bool = False) -> Handle:
    """Submits a scatter; the handle's result is as scatter's."""
    return start(lib.dtrain_scatter_async, Call("scatter", name, process_set, _blocking),
                 lambda name: NUMPY.placed(name, x, my_rows(out, process_set)), root,
                 priority=priority, timeout=timeout)


def scatter(x: Any, root: int, name: str | None = None, out: Any = None,
            **options: Any) -> np.ndarray:
    """This rank's rows of rank `root`'s `x`, shared out as by reducescatter. Elsewhere x gives the
    whole tensor's shape and type only."""
    return scatter_async(x, root, name, out, _blocking=True, **options).complete()


def alltoall_async(x: Any, splits: Sequence[int] | None = None, name: str | None = None,
                   out: Any = None, *, process_set: ProcessSet = world, priority: int = 0,
                   timeout: float | None = None, _blocking: bool = False) -> Handle:
    """Submits an all-to-all; the handle's result is as alltoall's."""
    call = Call("alltoall", name, process_set, _blocking)
    with call:
        counts = split_counts(splits)
    return start(lib.dtrain_alltoall_async, call,
                 lambda name: NUMPY.swapped(name, x, process_set, out, list), counts,
                 0 if counts is None else len(counts), priority=priority, timeout=timeout)


def alltoall(x: Any, splits: Sequence[int] | None = None, name: str | None = None, out: Any = None,
             **options: Any) -> tuple[np.ndarray, list[int]]:
    """Sends splits[r] rows of `x` to rank r, behind those for lower ranks; returns what came from
    all ranks in rank order, and how many rows came from each. `splits` None: the same for each."""
    return alltoall_async(x, splits, name, out, _blocking=True, **options).complete()


def send_async(x: Any, peer: int, name: str, *, process_set: ProcessSet = world,
               priority: int = 0, timeout: float | None = None) -> Handle:
    """Submits a send of `x` to rank `peer`, which must receive the same name, shape and type."""
    return start(lib.dtrain_send_async, Call("send", name, process_set),
                 lambda name: NUMPY.placed(name, x, lambda x: None), peer, priority=priority,
                 timeout=timeout)


def send(x: Any, peer: int, name: str, **options: Any) -> None:
    """Sends `x` to rank `peer`, and waits until it is there."""
    send_async(x, peer, name, **options).complete()


def recv_async(out: Any, peer: int, name: str, *, process_set: ProcessSet = world,
               priority: int = 0, timeout: float | None = None) -> Handle:
    """Submits a receive into `out` from rank `peer`; the handle's result is `out`."""
    def make(name: str) -> Part:
        return Part(_submit.tensor(name, None, writable(out)), out, lambda handle: out)

    return start(lib.dtrain_recv_async, Call("recv", name, process_set), make, peer,
                 priority=priority, timeout=timeout)


def recv(out: Any, peer: int, name: str, **options: Any) -> Any:
    """Receives into `out` what rank `peer` sends under this name, and returns it."""
    return recv_async(out, peer, name, **options).complete()
