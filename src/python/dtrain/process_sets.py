"""Process sets: some ranks of the world, with operations of their own."""
from __future__ import annotations

import ctypes
from typing import Sequence

from dtrain import _abi, errors
from dtrain._library import lib


class ProcessSet:
    """Some ranks of the world, in an order of their own. Made by add_process_set; `world` is the
    set of all. Give it to an operation as process_set=."""

    __slots__ = ("id",)

    def __init__(self, id: int):
        self.id = id  # as dtrain_pset_t

    def _ask(self, function) -> int:
        value = ctypes.c_int()
        errors.check(function(self.id, value))
        return value.value

    def rank(self) -> int:
        """This rank's number in the set; -1 when it is no member."""
        return self._ask(lib.dtrain_pset_rank)

    def size(self) -> int:
        """How many ranks the set has."""
        return self._ask(lib.dtrain_pset_size)

    def included(self) -> bool:
        """Whether this rank is a member."""
        return self._ask(lib.dtrain_pset_included) != 0

    @property
    def ranks(self) -> list[int]:
        """The members' ranks in the world, by their numbers in the set."""
        n = ctypes.c_int()
        errors.check(lib.dtrain_pset_ranks(self.id, None, 0, n))
        ranks = (ctypes.c_int * n.value)()
        errors.check(lib.dtrain_pset_ranks(self.id, ranks, n.value, n))
        return list(ranks)

    def __eq__(self, other) -> bool:
        return isinstance(other, ProcessSet) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<dtrain.ProcessSet {self.id}>"


#: All ranks.
world = ProcessSet(_abi.PSET_WORLD)


def add_process_set(ranks: Sequence[int]) -> ProcessSet:
    """Makes a process set of `ranks`, each once, in the order of their numbers in it. Every rank of
    the world must call it, members or not, with the same list. Blocks until all have."""
    ranks = list(ranks)
    number = ctypes.c_int32()
    errors.check(lib.dtrain_pset_add((ctypes.c_int * len(ranks))(*ranks), len(ranks), number))
    return ProcessSet(number.value)


def remove_process_set(process_set: ProcessSet) -> None:
    """Removes a set. Every rank of the world must call it; no operation may be pending on it."""
    errors.check(lib.dtrain_pset_remove(process_set.id))
