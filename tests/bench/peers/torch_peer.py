#!/usr/bin/env python3
"""torch_peer.py horovod|gloo CASE … - Horovod, or torch.distributed on Gloo, as runner.h says.

Horovod gets each set by asynchronous named calls, as its optimizers make them, and fuses by itself.
torch.distributed gets it by asynchronous calls, and packed into buckets of 25 MiB as
DistributedDataParallel packs. Started by Open MPI's mpirun; for gloo the variable
DTRAIN_BENCH_STORE names a file that does not exist yet.
"""

import json
import os
import sys
import time

import torch

WARMUP = 3
BUDGET = 0.4  # seconds for all rounds of a case, as in runner.c
BUCKET = 25 << 20


class Horovod:
    def __init__(self):
        import horovod.torch
        self.api = horovod.torch
        self.api.init()
        self.rank, self.size = self.api.rank(), self.api.size()
        self.modes = ["each"]

    def start(self, tensor, name):
        return self.api.allreduce_async_(tensor, op=self.api.Sum, name=name)

    def finish(self, handle):
        self.api.synchronize(handle)

    def greatest(self, values):
        gathered = self.api.allgather(torch.tensor([values], dtype=torch.float64), name="greatest")
        return gathered.max(0).values.tolist()


class Gloo:
    def __init__(self):
        self.rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
        self.size = int(os.environ["OMPI_COMM_WORLD_SIZE"])
        self.api = torch.distributed
        self.api.init_process_group("gloo", rank=self.rank, world_size=self.size,
                                    init_method="file://" + os.environ["DTRAIN_BENCH_STORE"])
        self.modes = ["each", "packed"]

    def start(self, tensor, name):
        return self.api.all_reduce(tensor, async_op=True)

    def finish(self, handle):
        handle.wait()

    def greatest(self, values):
        tensor = torch.tensor(values, dtype=torch.float64)
        self.api.all_reduce(tensor, op=self.api.ReduceOp.MAX)
        return tensor.tolist()


class Work:
    """The tensors of one case."""

    def __init__(self, peer, name, counts):
        self.peer, self.name = peer, name
        self.tensors = [torch.zeros(count) for count in counts]
        self.names = [f"{name}.{i}" for i in range(len(counts))]
        self.bytes = 4 * sum(counts)
        self.buckets = []

    def fill(self):
        for tensor in self.tensors:
            tensor.fill_(self.peer.rank + 1)

    def is_summed(self):
        expected = self.peer.size * (self.peer.size + 1) / 2
        return all(bool((tensor == expected).all()) for tensor in self.tensors)

    def pack(self):
        """Shares the tensors out over buckets, in order."""
        members, size = [], 0
        for tensor in self.tensors + [None]:
            if members and (tensor is None or size + 4 * tensor.numel() > BUCKET):
                self.buckets.append((torch.zeros(size // 4), members))
                members, size = [], 0
            if tensor is not None:
                members, size = members + [tensor], size + 4 * tensor.numel()

    def each(self):
        handles = [self.peer.start(*pair) for pair in zip(self.tensors, self.names)]
        for handle in handles:
            self.peer.finish(handle)

    def packed(self):
        handles = []
        for bucket, members in self.buckets:
            torch.cat(members, out=bucket)
            handles.append(self.peer.start(bucket, ""))
        for handle, (bucket, members) in zip(handles, self.buckets):
            self.peer.finish(handle)
            parts = bucket.split([tensor.numel() for tensor in members])
            for tensor, part in zip(members, parts):
                tensor.copy_(part)

    def one_round(self, run):
        repeats = 5 if self.bytes <= 65536 else 1  # fewer than in runner.c: they take long
        self.fill()
        self.peer.greatest([0.0])
        start = time.perf_counter()
        for i in range(repeats):
            if i:
                self.fill()
            run()
        return (time.perf_counter() - start) / repeats

    def measure(self, mode):
        run = self.packed if self.buckets else self.each
        for _ in range(WARMUP):
            start = time.perf_counter()
            self.one_round(run)
            warm = time.perf_counter() - start
        if not self.is_summed():
            sys.exit(f"torch_peer.py: case {self.name} {mode}: wrong sum")
        most = (200 if self.bytes <= 65536 else 100 if self.bytes <= 4 << 20
                else 25 if self.bytes <= 64 << 20 else 15)
        warm, = self.peer.greatest([warm])
        rounds = max(5, min(most, int(BUDGET / warm)))
        times = sorted(self.peer.greatest([self.one_round(run) for _ in range(rounds)]))
        if self.peer.rank == 0:
            print(json.dumps({"case": self.name, "mode": mode,
                              "median_us": round(times[rounds // 2] * 1e6, 3),
                              "min_us": round(times[0] * 1e6, 3), "rounds": rounds}), flush=True)


def run_case(peer, name):
    if not name.startswith("set:"):
        Work(peer, name, [int(name) // 4]).measure("")
        return
    with open(name[len("set:"):], encoding="ascii") as file:
        work = Work(peer, name, [int(line) for line in file])
    for mode in peer.modes:
        if mode == "packed":
            work.pack()
        work.measure(mode)


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in ("horovod", "gloo"):
        sys.exit(__doc__)
    torch.set_num_threads(1)
    # horovodrun, unlike mpirun, binds no rank to a core.
    if "HOROVOD_LOCAL_RANK" in os.environ:
        os.sched_setaffinity(0, {int(os.environ["HOROVOD_LOCAL_RANK"]) % os.cpu_count()})
    peer = Horovod() if sys.argv[1] == "horovod" else Gloo()
    for name in sys.argv[2:]:
        run_case(peer, name)


if __name__ == "__main__":
    main()
