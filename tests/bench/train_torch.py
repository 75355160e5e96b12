#!/usr/bin/env python3
"""train_torch.py [--rounds N] [--steps N] [--library FILE] [MODE …] - step time of a PyTorch training on
two ranks, one thread each, alternating between ways to reduce the gradients.

The model is a perceptron of 784-2048-2048-10 units (5.8 million parameters), batches are 64 a rank,
the optimizer is SGD. Modes:

  alone      one process, nothing to reduce
  dtrain     dtrain.torch.DistributedOptimizer
  views      the same with gradients in the library's memory
  library    dtrain.torch.Optimizer: gradients, parameters and update in the library
  sharded    the same, each rank updating its half
  ddp        torch.nn.parallel.DistributedDataParallel on Gloo, with gradient_as_bucket_view
  ddp-hook   the same with dtrain.torch.ddp.allreduce_hook
  horovod    Horovod's DistributedOptimizer, of build/peers/python (tests/bench/peers.sh)

Each round runs every mode once, as a job of its own. Printed are the median step and the fastest of
ten, over rounds, and the median's ratio to dtrain's of the same round. The first steps of a job are
not counted.
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODES = ["alone", "dtrain", "views", "library", "sharded", "ddp", "ddp-hook", "horovod"]
HOROVOD = os.path.join(ROOT, "build/peers/python/bin/python")
WARM_UP = 5


def wrap(mode, model, optimizer, torch):
    """The module to call, the optimizer to step and the rank."""
    if mode == "alone":
        return model, optimizer, 0
    if mode in ("dtrain", "views"):
        import dtrain.torch as dt
        dt.init()
        optimizer = dt.DistributedOptimizer(optimizer, model.named_parameters(),
                                            gradients_as_views=mode == "views")
        dt.broadcast_parameters(model.state_dict())
        return model, optimizer, dt.rank()
    if mode in ("library", "sharded"):
        import dtrain.torch as dt
        dt.init()
        optimizer = dt.Optimizer(model.named_parameters(), "sgd", lr=0.01,
                                 sharded=mode == "sharded")
        optimizer.broadcast(0)
        return model, optimizer, dt.rank()
    if mode == "horovod":
        import horovod.torch as hvd
        hvd.init()
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        return model, optimizer, hvd.rank()
    import torch.distributed as dist
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    dist.init_process_group("gloo", rank=rank, world_size=2, init_method="tcp://127.0.0.1:29517")
    net = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    if mode == "ddp-hook":
        import dtrain.torch as dt
        dt.init()
        net.register_comm_hook(dt.ddp.HookState(), dt.ddp.allreduce_hook)
    return net, optimizer, rank


def work(mode, steps):
    """One rank: prints the step times in milliseconds, on rank 0."""
    import torch
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(784, 2048), torch.nn.ReLU(),
                                torch.nn.Linear(2048, 2048), torch.nn.ReLU(),
                                torch.nn.Linear(2048, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    net, optimizer, rank = wrap(mode, model, optimizer, torch)
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(64, 784, generator=generator)
    y = torch.randint(0, 10, (64,), generator=generator)
    times = []
    for _ in range(steps + WARM_UP):
        start = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        times.append(1000 * (time.perf_counter() - start))
    if rank == 0:
        print("times", *[f"{t:.3f}" for t in times[WARM_UP:]], flush=True)


def job(mode, steps, library):
    """The step times of one job; None when it does not run."""
    python = HOROVOD if mode == "horovod" else "/usr/bin/python3"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "DTRAIN_LIBRARY": library,
                   "GLOO_SOCKET_IFNAME": "lo"}
    if mode != "horovod":
        environment["PYTHONPATH"] = os.path.join(ROOT, "src/python")
    launcher = [os.path.join(ROOT, "tests/support/mpirun.sh"), "openmpi", "mpirun", "2"]
    command = [python, os.path.abspath(__file__), "--work", "--steps", str(steps), mode]
    done = subprocess.run(([] if mode == "alone" else launcher) + command, env=environment,
                          capture_output=True, text=True, timeout=300, check=False)
    for line in done.stdout.splitlines():
        if line.startswith("times"):
            return [float(word) for word in line.split()[1:]]
    print(f"{mode}: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modes", nargs="*", default=MODES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--library", default=os.path.join(ROOT, "build/release/lib/libdtrain.so"))
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(options.modes[0], options.steps)
    modes = [mode for mode in options.modes if mode != "horovod" or os.path.exists(HOROVOD)]
    for mode in set(options.modes) - set(modes):
        print(f"{mode}: skipped, {HOROVOD} is not there (tests/bench/peers.sh)")
    rounds = []
    for _ in range(options.rounds):
        results = {mode: job(mode, options.steps, options.library) for mode in modes}
        rounds.append({mode: (statistics.median(times), sorted(times)[len(times) // 10])
                       for mode, times in results.items() if times})
    for mode in modes:
        seen = [times[mode] for times in rounds if mode in times]
        if not seen:
            continue
        median, fast = (statistics.median(column) for column in zip(*seen))
        ratios = [times[mode][0] / times["dtrain"][0] for times in rounds
                  if mode in times and "dtrain" in times]
        ratio = f"{statistics.median(ratios):6.2f} of dtrain's" if ratios else ""
        print(f"{mode:10} {median:8.2f} ms a step, {fast:8.2f} the fastest of ten {ratio}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
