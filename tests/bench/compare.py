#!/usr/bin/env python3
"""compare.py - runs libdtrain and its peers in alternation, and stores what they took.

tests/bench/peers.sh has to run before it. In a round, all contestants run the small sizes one
after the other, then the larger ones, then each gradient set; each round begins with another
contestant. A run waits for the machine to be quiet, and is repeated when others used more of it
than the limit, as long as patience lasts. Everything is stored in one JSON file after
each run; tests/bench/report.py makes docs/benchmarks.md of it.
"""

import argparse
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cases
import load
from contestants import PEERS, ROOT, Idle, everyone

RESULTS = Path(__file__).resolve().parent / "results" / "results.json"
TIME_LIMIT = 180  # seconds for one command


class RunFailed(Exception):
    pass


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--build", default="build/release", metavar="FOLDER",
                        help="build of libdtrain, from the root of the sources (%(default)s)")
    parser.add_argument("--only", default="", metavar="NAME,…", help="these contestants")
    parser.add_argument("--cases", default="", metavar="CASE,…",
                        help="of each contestant, runs that begin with these sizes or sets only")
    parser.add_argument("--limit", type=float, default=3, metavar="PERCENT",
                        help="of the machine that others may use (%(default)s)")
    parser.add_argument("--patience", type=float, default=1800, metavar="SECONDS",
                        help="after which it measures anyway (%(default)s)")
    parser.add_argument("--wait", type=float, default=120, metavar="SECONDS",
                        help="for a quiet moment, at most, before each run (%(default)s)")
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--append", action="store_true", help="to the runs that are stored")
    return parser.parse_args()


def read_peers():
    """Name to (is there, version or reason), as peers.sh found them."""
    path = ROOT / PEERS / "peers.tsv"
    if not path.exists():
        sys.exit("compare.py: run tests/bench/peers.sh first")
    peers = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, there, text = line.split("\t")
        peers[name] = (there == "yes", text)
    return peers


# ---- The machine ---------------------------------------------------------------------------


def first_line(*command):
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return (found.stdout or found.stderr).strip().split("\n", 1)[0]


def describe_machine():
    processor = {}
    for line in subprocess.run(["lscpu"], capture_output=True, text=True,
                               check=False).stdout.splitlines():
        key, _, value = line.partition(":")
        processor[key.strip()] = value.strip()
    release = platform.freedesktop_os_release()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2 ** 30
    return {"processor": processor.get("Model name", platform.processor()),
            "family": f"family {processor.get('CPU family', '?')}, "
                      f"model {processor.get('Model', '?')}",
            "cores": os.cpu_count(), "L2": processor.get("L2 cache", "?"),
            "L3": processor.get("L3 cache", "?"),
            "virtual": processor.get("Hypervisor vendor", "no"),
            "memory": f"{memory:.0f} GiB", "system": release.get("PRETTY_NAME", "?"),
            "kernel": platform.release().split("-")[0], "compiler": first_line("gcc", "--version"),
            "source": first_line("git", "-C", str(ROOT), "describe", "--always", "--dirty")}


# ---- One run -------------------------------------------------------------------------------


def environment_of(contestant, scratch):
    environment = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1",
                       OPENBLAS_NUM_THREADS="1", **contestant.variables(scratch))
    # The wheels know their libraries by the folder that they are in.
    if "I_MPI_ROOT" in environment:
        environment["LD_LIBRARY_PATH"] = environment["I_MPI_ROOT"] + "/lib"
    return environment


def execute(command, environment):
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=TIME_LIMIT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunFailed(str(error)) from error
    if done.returncode:
        lines = [re.sub(r"^\[[^]]*\] *", "", line)
                 for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise RunFailed(f"exit status {done.returncode}: {' / '.join(lines[:3])}")
    return done.stdout


def run_once(contestant, part):
    """(rows, percentage of the machine that others used, command)."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = environment_of(contestant, scratch)
        command = contestant.command(part, scratch)
        watch = load.Watch()
        output = execute(command, environment)
        percent = watch.percent()
        rows = contestant.read(output, scratch)
        if not rows:
            raise RunFailed("it printed no result")
        settings = [f"{name}={value}" for name, value in contestant.variables(scratch).items()]
        shown = " ".join([*settings, shlex.join(command)])
        return rows, percent, shown.replace(scratch, "$TMP").replace(f"{ROOT}/", "")


def run_quietly(contestant, part, arguments, deadline):
    """The quietest of up to three runs."""
    best = None
    for _ in range(3):
        patience = min(deadline, time.monotonic() + arguments.wait)
        quiet = load.wait_for_quiet(arguments.limit, patience)
        found = run_once(contestant, part)
        if best is None or found[1] < best[1]:
            best = found
        if best[1] <= arguments.limit or not quiet:
            break
    return best


# ---- All runs ------------------------------------------------------------------------------


def choose(arguments, peers):
    """The contestants that can run; the others are named aloud."""
    wanted = set(filter(None, arguments.only.split(",")))
    chosen = []
    for contestant in everyone(arguments.build):
        if wanted and contestant.name not in wanted:
            continue
        there, text = peers.get(contestant.needs, (contestant.needs == "", "peers.sh is older"))
        if there:
            chosen.append(contestant)
        else:
            print(f"skipped {contestant.name}: {text}", flush=True)
    return chosen


def store(path, stored):
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {key: value for key, value in stored.items() if key != "runs"}
    text = json.dumps(head, indent=1, ensure_ascii=False)[:-2]
    runs = ",\n  ".join(json.dumps(run) for run in stored["runs"])
    path.write_text(f'{text},\n "runs": [\n  {runs}\n ]\n}}\n', encoding="utf-8")


def one_run(contestant, part, arguments, deadline, number, stored):
    rows, percent, command = run_quietly(contestant, part, arguments, deadline)
    compact = [[row["case"], row.get("mode", ""), row.get("median_us", row.get("percent")),
                row.get("min_us")] for row in rows]
    about = stored["contestants"].setdefault(contestant.name,
                                             {"title": contestant.title, "commands": []})
    if command not in about["commands"]:
        about["commands"].append(command)
    stored["runs"].append({"contestant": contestant.name, "round": number,
                           "others_percent": round(percent, 2), "rows": compact})
    print(f"round {number}: {contestant.name} from {part[0]}: {len(rows)} results, "
          f"others used {percent:.1f}%", flush=True)


def schedule(contestants, wanted, number, first):
    """(contestant, part) in the order of a round: part after part, over all contestants."""
    turn = (number - 1) * 3 % max(1, len(contestants))
    turned = contestants[turn:] + contestants[:turn]
    parts = {contestant.name: [part for part in contestant.parts()
                               if not wanted or str(part[0]) in wanted]
             for contestant in contestants}
    for i in range(max(map(len, parts.values()), default=0)):
        for contestant in turned:
            if i < len(parts[contestant.name]) and (number < first + 2
                                                    or not isinstance(contestant, Idle)):
                yield contestant, parts[contestant.name][i]


def main():
    arguments = parse_arguments()
    os.chdir(ROOT)
    peers = read_peers()
    cases.write_sets(ROOT / PEERS / "sets")
    contestants = choose(arguments, peers)
    wanted = set(filter(None, arguments.cases.split(",")))
    deadline = time.monotonic() + arguments.patience
    stored = {"runs": [], "contestants": {}, "failed": {}}
    if arguments.append:
        stored = json.loads(arguments.output.read_text(encoding="utf-8"))
        for contestant in contestants:
            stored["failed"].pop(contestant.name, None)
    stored.update(date=time.strftime("%Y-%m-%d"), machine=describe_machine(),
                  limit_percent=arguments.limit,
                  peers={name: list(found) for name, found in peers.items()})
    first = 1 + max((run["round"] for run in stored["runs"]), default=0)
    for number in range(first, first + arguments.rounds):
        for contestant, part in schedule(contestants, wanted, number, first):
            if contestant.name in stored["failed"]:
                continue
            try:
                one_run(contestant, part, arguments, deadline, number, stored)
            except (RunFailed, ValueError) as error:
                stored["failed"][contestant.name] = str(error).replace(str(ROOT) + "/", "")[:200]
                print(f"round {number}: {contestant.name} failed: {error}", flush=True)
            store(arguments.output, stored)


if __name__ == "__main__":
    main()
