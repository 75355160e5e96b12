"""Small things that scripts take from here."""
from __future__ import annotations

from typing import Any


def split_list(items: list[Any], n: int) -> list[list[Any]]:
    """`items` in n parts in their order, of which the first ones may be longer by one."""
    size, more = divmod(len(items), n)
    starts = [i * size + min(i, more) for i in range(n + 1)]
    return [items[start:end] for start, end in zip(starts, starts[1:])]


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether a number of ranks is a power of two."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def is_iterable(value: Any) -> bool:
    """Whether one can iterate over a value."""
    try:
        iter(value)
    except TypeError:
        return False
    return True
