"""ElasticSampler: a torch sampler that remembers how far an epoch has come."""
from __future__ import annotations

from typing import Any, Iterator, Sized

import numpy as np
import torch

from dtrain import lifecycle
from dtrain.sampler import Sampler


class ElasticSampler(torch.utils.data.Sampler):
    """Deals the samples of an epoch out to the ranks, less those that were processed already: after
    a restart with another number of ranks the epoch goes on where it was.

    record_batch() after each batch and state_dict() in the saved state make that work; set_epoch()
    at the end of an epoch starts the next one.

    dataset: anything with a length, the same on all ranks.
    shuffle: another order in every epoch, which depends on `seed` and the epoch alone.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0):
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Starts an epoch, from its first sample."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Notes that every rank has processed a batch of `batch_size` samples."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, Any]:
        """How far it is."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on where the state was taken."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Deals the remaining samples out to the ranks that there are now."""
        self.num_replicas, self.rank = lifecycle.size(), lifecycle.rank()
        self.remaining_indices = self._order()[self.processed_num:]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def _order(self) -> np.ndarray:
        total = len(self.dataset)
        if total == 0:
            return np.empty(0, np.int64)
        plan = Sampler(total, total, seed=self.seed, shuffle=self.shuffle, rank=0, size=1)
        plan.seek(self.epoch)
        return next(plan).samples

    def __iter__(self) -> Iterator[int]:
        # Every rank gets the same number: the first ones are dealt out again at the end.
        dealt = np.resize(self.remaining_indices, self.total_size)
        return iter(dealt[self.rank::self.num_replicas].tolist())

    def __len__(self) -> int:
        return self.num_samples
