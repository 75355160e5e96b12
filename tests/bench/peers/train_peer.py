#!/usr/bin/env python3
"""train_peer.py single|ddp|horovod RULE STEPS - a step of training on torch, as bench_train's.

A multilayer perceptron 784-2048-2048-10 on a batch of 64 a rank, one thread a rank. single: no
communication; ddp: DistributedDataParallel on Gloo, whose ranks meet in the file that
DTRAIN_BENCH_STORE names; horovod: its DistributedOptimizer. Rank 0 prints one JSON line.
"""

import json
import os
import resource
import sys
import time

import torch

WARMUP = 8


def make_model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(784, 2048), torch.nn.ReLU(),
                               torch.nn.Linear(2048, 2048), torch.nn.ReLU(),
                               torch.nn.Linear(2048, 10))


def make_optimizer(model, rule):
    if rule == "adam":
        return torch.optim.Adam(model.parameters(), lr=1e-3)
    return torch.optim.SGD(model.parameters(), lr=1e-3)


def main():
    mode, rule, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", 0))
    size = int(os.environ.get("OMPI_COMM_WORLD_SIZE", 1))
    torch.set_num_threads(1)
    model = make_model()
    optimizer = make_optimizer(model, rule)
    net = model
    if mode == "ddp":
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{os.environ['DTRAIN_BENCH_STORE']}", rank=rank,
            world_size=size)
        net = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    elif mode == "horovod":
        import horovod.torch as hvd
        hvd.init()
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    inputs = torch.randn(64, 784, generator=torch.Generator().manual_seed(rank))
    labels = torch.arange(64) % 10
    loss = torch.nn.CrossEntropyLoss()
    times = []
    for _ in range(WARMUP + steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss(net(inputs), labels).backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    times = sorted(times[WARMUP:])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if rank == 0:
        print(json.dumps({"ranks": size, "step_ms": 1e3 * times[len(times) // 2],
                          "peak_MiB": round(peak)}), flush=True)


if __name__ == "__main__":
    main()
