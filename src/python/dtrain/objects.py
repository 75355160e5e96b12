"""Python objects from rank to rank, pickled."""
from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from dtrain.exchanges import allgather, broadcast
from dtrain.process_sets import ProcessSet, world
from dtrain.lifecycle import rank


def dumps(value: Any) -> bytes:
    """Pickles, by cloudpickle where it is installed, which knows functions of __main__."""
    try:
        import cloudpickle
    except ImportError:
        return pickle.dumps(value)
    return cloudpickle.dumps(value)


def broadcast_object(value: Any = None, root: int = 0, name: str | None = None, *,
                     process_set: ProcessSet = world) -> Any:
    """Rank `root`'s `value`, on every rank of the set. Elsewhere `value` is not used."""
    name = name or "object"
    is_root = rank() == root
    data = np.frombuffer(dumps(value), np.uint8) if is_root else None
    size = np.array([data.size if data is not None else 0])
    size = broadcast(size, root, name + ".size", process_set=process_set)
    if data is None:
        data = np.empty(int(size[0]), np.uint8)
    data = broadcast(data, root, name + ".data", process_set=process_set)
    return value if is_root else pickle.loads(data.tobytes())


def allgather_object(value: Any, name: str | None = None, *,
                     process_set: ProcessSet = world) -> list[Any]:
    """Every rank's `value`: a list in the order of the set's ranks."""
    name = name or "objects"
    data = np.frombuffer(dumps(value), np.uint8)
    sizes = allgather(np.array([data.size]), name + ".sizes", process_set=process_set)
    rows = allgather(data, name + ".data", process_set=process_set)
    ends = np.cumsum(sizes)
    return [pickle.loads(rows[end - size:end].tobytes()) for size, end in zip(sizes, ends)]
