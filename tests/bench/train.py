#!/usr/bin/env python3
"""train.py - what training on two ranks costs over two processes that do not know each other.

Runs, in alternation: libdtrain sharded and not, torch's DistributedDataParallel on Gloo, Horovod,
each on two ranks of one thread, and for each of them the same program twice at once, without
communication. Prints the medians over the rounds, and for each the overhead: its step over the step
of the independent pair of the same program, minus 1. Says what was skipped, and how much of the
machine others used.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import load

ROOT = Path(__file__).resolve().parents[2]
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "2"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rule", choices=["sgd", "adam"], default="sgd")
    parser.add_argument("--build", default=ROOT / "build/release", type=Path, metavar="FOLDER")
    parser.add_argument("--peers", default=ROOT / "build/peers", type=Path, metavar="FOLDER",
                        help="where tests/bench/peers.sh put what it built (%(default)s)")
    return parser.parse_args()


def read_peers(folder):
    path = folder / "peers.tsv"
    if not path.exists():
        return {}
    lines = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    return {name: (there == "yes", text) for name, there, text in lines}


def last_json(output):
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"no result in {output!r}")
    return json.loads(lines[-1])


def environment(extra):
    return dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1",
                OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **extra)


def run_ranks(command, store):
    done = subprocess.run(MPIRUN + command, capture_output=True, text=True, timeout=600, check=True,
                          env=environment({"DTRAIN_BENCH_STORE": store}))
    return last_json(done.stdout)


def run_pair(command, _store):
    """Two processes at once; the slower one's result."""
    pair = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment({}))
            for _ in range(2)]
    results = [last_json(process.communicate(timeout=600)[0]) for process in pair]
    return max(results, key=lambda result: result["step_ms"])


def contestants(arguments, peers):
    """(name, of which independent pair, how it is run, command)."""
    own = [str(arguments.build / "tests/bench/bench_train"), "step", "--rule", arguments.rule,
           "--steps", str(arguments.steps)]
    script = [str(ROOT / "tests/bench/peers/train_peer.py")]
    rest = [arguments.rule, str(arguments.steps)]
    found = [("pair of bench_train", None, run_pair, own),
             ("libdtrain", "pair of bench_train", run_ranks, own),
             ("libdtrain, sharded", "pair of bench_train", run_ranks, own + ["--sharded"])]
    for peer, mode, python in (("torch", "ddp", "/usr/bin/python3"),
                               ("horovod", "horovod", str(arguments.peers / "python/bin/python3"))):
        there, why = peers.get(peer, (False, f"{arguments.peers} does not have it"))
        if not there:
            print(f"skipped {peer}: {why}")
            continue
        pair = f"pair of torch ({mode})"
        found.append((pair, None, run_pair, [python, *script, "single", *rest]))
        found.append((mode, pair, run_ranks, [python, *script, mode, *rest]))
    return found


def main():
    arguments = parse_arguments()
    everyone = contestants(arguments, read_peers(arguments.peers))
    results = {name: [] for name, *_ in everyone}
    watch = load.Watch()
    for number in range(arguments.rounds):
        turn = number % len(everyone)
        for name, _, run, command in everyone[turn:] + everyone[:turn]:
            with tempfile.TemporaryDirectory() as scratch:
                results[name].append(run(command, f"{scratch}/store"))
    medians = {name: {key: statistics.median(result[key] for result in found) for key in found[0]}
               for name, found in results.items()}
    print(f"{arguments.rule}, {arguments.rounds} rounds of {arguments.steps} steps; others used "
          f"{watch.percent():.1f}% of the machine")
    for name, base, *_ in everyone:
        overhead = ""
        if base:
            share = medians[name]["step_ms"] / medians[base]["step_ms"] - 1
            overhead = f"  overhead {100 * share:.1f}%"
        print(f"{name:24}{overhead:18} {json.dumps(medians[name])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
