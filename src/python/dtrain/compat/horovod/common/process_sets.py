"""Horovod's process sets: objects that exist before the world does, and are given a number in it."""
from __future__ import annotations

from typing import Any, Iterable, Sequence

import dtrain
from dtrain import errors


class ProcessSet:
    """Some ranks of the world, in ascending order. It can be used after hvd.add_process_set() or
    hvd.init(process_sets=[…]); until then, and after it was removed, size() and rank() are None."""

    def __init__(self, ranks_or_comm: Iterable[int] | Any):
        self.process_set_id: int | None = None
        self.mpi_comm = None
        if hasattr(ranks_or_comm, "py2f"):
            ranks_or_comm = _ranks_of(ranks_or_comm)
        self.ranks = sorted(ranks_or_comm)
        if any(not isinstance(rank, int) for rank in self.ranks):
            raise ValueError("a process set is made of ranks or of an mpi4py communicator")

    @property
    def id(self) -> int:
        """As dtrain.ProcessSet: what dtrain's functions ask for."""
        if self.process_set_id is None:
            raise ValueError(f"{self} is not in the world: use hvd.add_process_set()")
        return self.process_set_id

    def size(self) -> int | None:
        """How many ranks the set has."""
        return None if self.process_set_id is None else dtrain.ProcessSet(self.id).size()

    def rank(self) -> int | None:
        """This rank's number in the set."""
        return None if self.process_set_id is None else dtrain.ProcessSet(self.id).rank()

    def included(self) -> bool:
        """Whether this rank is a member."""
        return dtrain.rank() in self.ranks

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


def _ranks_of(comm: Any) -> list[int]:
    """The ranks that an mpi4py communicator's processes have in the world of all processes."""
    from mpi4py import MPI
    everybody = MPI.COMM_WORLD.Get_group()
    group = comm.Get_group()
    return list(MPI.Group.Translate_ranks(group, range(group.size), everybody))


class _Global(ProcessSet):
    """All ranks."""

    def __init__(self) -> None:
        super().__init__([])
        self.process_set_id = 0

    def included(self) -> bool:
        return True


global_process_set = _Global()
_added: dict[int, ProcessSet] = {}


def enter_world(process_sets: Iterable[ProcessSet]) -> None:
    """Gives sets their numbers in a world that has just been made."""
    _added.clear()
    global_process_set.ranks = list(range(dtrain.size()))
    for process_set in process_sets:
        add_process_set(process_set)


def leave_world() -> None:
    """The sets of the world are no more."""
    for process_set in _added.values():
        process_set.process_set_id = None
    _added.clear()


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Adds a process set to the world; every rank calls it with the same ranks. ValueError when
    there is one of the same ranks."""
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    same = [other for other in (global_process_set, *_added.values())
            if other.ranks == process_set.ranks]
    if same:
        raise ValueError(f"there is a process set of these ranks: {same[0]}")
    process_set.process_set_id = dtrain.add_process_set(process_set.ranks).id
    _added[process_set.process_set_id] = process_set
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a set on all ranks, and returns whether it did: not the global one, and none that was
    not added."""
    number = process_set.process_set_id
    if not number:
        return False
    try:
        dtrain.remove_process_set(dtrain.ProcessSet(number))
    except errors.InvalidArgument:
        return False
    _added.pop(number, None)
    process_set.process_set_id = None
    return True
