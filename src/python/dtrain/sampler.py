"""Which samples a rank trains on: the library's sampler."""
from __future__ import annotations

import ctypes
from typing import Any, Iterator, NamedTuple

import numpy as np

from dtrain import _abi, errors
from dtrain._library import lib


class Batch(NamedTuple):
    """This rank's part of a global batch."""
    samples: np.ndarray  # int64: numbers of samples, from 0; may be empty
    epoch: int           # from 0
    index: int           # of the batch in its epoch, from 0
    count: int           # batches of every epoch
    global_size: int     # samples of the global batch, over all ranks


class Sampler:
    """Deals samples out to ranks: an epoch's order depends on seed and epoch alone, and batch k of
    an epoch holds the same samples at any number of ranks. Sends nothing; every rank computes its
    part of the same plan. Iterating gives Batch after Batch, epoch after epoch, without end.

    num_samples:  of an epoch, >= 1.
    global_batch: samples of a step over all ranks, >= 1.
    shuffle:      another order in every epoch; else 0, 1, 2, …
    drop_last:    leave out an epoch's last batch when it is short.
    rank, size:   whose part is wanted; None: of the world.
    """

    def __init__(self, num_samples: int, global_batch: int, *, seed: int = 0, shuffle: bool = True,
                 drop_last: bool = False, rank: int | None = None, size: int | None = None):
        desc = _abi.SamplerDesc(
            struct_size=ctypes.sizeof(_abi.SamplerDesc), num_samples=num_samples,
            global_batch=global_batch, seed=seed, rank=rank or 0, size=size or 0,
            order=_abi.SAMPLER_SHUFFLED if shuffle else _abi.SAMPLER_SEQUENTIAL,
            last_batch=_abi.SAMPLER_LAST_DROPPED if drop_last else _abi.SAMPLER_LAST_SHORT)
        self._pointer = ctypes.c_void_p()
        errors.check(lib.dtrain_sampler_create(desc, self._pointer))
        self._room = np.empty(global_batch, np.int64)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch = _abi.Batch(struct_size=ctypes.sizeof(_abi.Batch))
        room = self._room.ctypes.data_as(ctypes.POINTER(ctypes.c_int64))
        errors.check(lib.dtrain_sampler_next(self._pointer, room, self._room.size, batch))
        return Batch(self._room[:batch.count].copy(), batch.epoch, batch.batch, batch.num_batches,
                     batch.global_count)

    def seek(self, epoch: int, index: int = 0) -> None:
        """Lets batch `index` of `epoch` come next, at once."""
        errors.check(lib.dtrain_sampler_seek(self._pointer, epoch, index))

    def state(self) -> bytes:
        """Where it stands, and of which plan; the same on all ranks."""
        state = _abi.SamplerState(struct_size=ctypes.sizeof(_abi.SamplerState))
        errors.check(lib.dtrain_sampler_save(self._pointer, state))
        return bytes(state)

    def restore(self, state: bytes) -> None:
        """Goes on where `state` was taken, on any rank of any number of ranks. ValueError when it
        is of another plan."""
        if len(state) != ctypes.sizeof(_abi.SamplerState):
            raise ValueError(f"{len(state)} bytes are no state of a sampler")
        errors.check(lib.dtrain_sampler_restore(self._pointer,
                                                _abi.SamplerState.from_buffer_copy(state)))

    def __del__(self) -> None:
        pointer: Any = getattr(self, "_pointer", None)
        if pointer and lib is not None:  # None when the interpreter ends
            lib.dtrain_sampler_destroy(pointer)
