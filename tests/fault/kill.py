#!/usr/bin/env python3
"""kill.py VICTIM - lets a random rank go down at a random point, over and over, and looks at the
others.

VICTIM is the program of victim.c, linked to a libdtrain with fault points. Each run follows from
its placement and its seed alone, so a bad one can be had again; the line that tells of it begins
with the options for that. Every survivor must get RANK_LOST with a text that names the rank, or be
through already; and nothing may be left: no process, no file in /dev/shm, no port. How long the
news took is a figure: a table, and a failure when it was longer than the bar times --slack. With
--harm it is a whole node that goes down, or the link to it.

Exit status 77: skipped, and the output says why.
"""

import argparse
import collections
import json
import os
import random
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cluster"))

import disaster  # noqa: E402
import isolated  # noqa: E402
from launchers import EARLY_POINTS, MODES, Launcher  # noqa: E402
from nodes import SKIPPED, Placement  # noqa: E402

RANK_LOST = -7
STEPS = 20
HANG_SECONDS = 30
BAR_SECONDS = {"node": 0.1, "cluster": 2.0}
LEAVE_SECONDS = 2.0  # from the death to the end of dtrain_shutdown
PART_SECONDS = 5.5   # the same, when nobody can see that a rank of another node died on its way out
END_SECONDS = 2.5    # to the end of a job whose launcher ends it by itself

# How often a rank passes a point in a run, about: what is chosen from.
POINTS = {"init-hello": 1, "init-connect": 1, "init-share": 1, "init-start": 1, "enqueue": 260,
          "negotiate": 60, "verdict": 60, "pack": 300, "reduce": 300, "unpack": 200,
          "broadcast": 100, "shutdown-bye": 1, "shutdown-wait": 1, "shutdown-leave": 1}
INIT_TIMEOUT_MS = 3000  # so that it is worth waiting for
# Survivors may be through before they can know.
LATE_POINTS = ("shutdown-wait", "shutdown-leave")
# Of a rank. A node goes down only while its ranks work: before, other nodes can only wait.
RANK_ACTIONS = ("kill", "kill", "kill", "exit", "abort", "segv")


class Case:
    """A run: where, and who goes down when."""

    def __init__(self, placement, seed, points, harms):
        choice = random.Random(f"{placement} {seed}")
        self.placement, self.seed = placement, seed
        self.victim = choice.randrange(placement.ranks)
        self.point = choice.choice(list(POINTS))
        if self.point not in points:
            self.point = choice.choice(points)
        most = POINTS.get(self.point, 1)
        self.nth = max(1, round(most ** choice.random()))
        self.action = choice.choice(RANK_ACTIONS)
        if harms:
            self.action = choice.choice(harms)
        if self.action == "node":  # the first is where the launcher is
            nodes = placement.node_of_ranks()
            self.victim = choice.choice([rank for rank, node in enumerate(nodes) if node > 0])
        self.choose_lost()

    def choose_lost(self):
        """Sets the ranks that do not survive, and for each rank whom it may lose."""
        nodes = self.placement.node_of_ranks()
        ranks = range(self.placement.ranks)
        own = [rank for rank in ranks if nodes[rank] == nodes[self.victim]]
        others = [rank for rank in ranks if rank not in own]
        if self.action in disaster.KINDS:
            self.lost = own if self.action == "node" else []
            self.loses = {rank: others if rank in own else own[:1] for rank in ranks}
        else:
            self.lost = [self.victim]
            self.loses = {rank: self.lost for rank in ranks}

    def survivors(self):
        return self.placement.ranks - len(self.lost)

    def ends_by_timeout(self):
        return self.placement.nodes > 0 and self.point in EARLY_POINTS

    def rule(self, path):
        action = "stop" if self.action in disaster.KINDS else self.action
        return f"{self.victim}:{self.point}:{self.nth}:{action}:{path}"

    def __str__(self):
        harm = f" --harm {self.action}" if self.action in disaster.KINDS else ""
        return (f"--runs 1 --on '{self.placement}' --seed {self.seed}{harm}: rank {self.victim}, "
                f"{self.point} {self.nth}, {self.action}")


class Result:
    """What came of it."""

    def __init__(self, case):
        self.case = case
        self.faults = []   # (kind, text)
        self.delays = []   # seconds from the death to each survivor's error
        self.leaves = []   # and to the end of its dtrain_shutdown
        self.death = None  # when it happened
        self.texts = []
        self.load = os.getloadavg()[0]

    def fault(self, kind, text):
        self.faults.append((kind, text))


class Job:
    """A launcher with its ranks."""

    def __init__(self, options):
        self.options = options
        self.launcher = Launcher(options.mpirun, options.launcher)

    def start(self, case, path, log):
        values = {"DTRAIN_FAULT": case.rule(path), "DTRAIN_LOG_LEVEL": "off",
                  **self.launcher.environment}
        if case.ends_by_timeout():
            values["DTRAIN_INIT_TIMEOUT_MS"] = str(INIT_TIMEOUT_MS)
        program = [self.options.victim, path, str(STEPS)]
        command = self.launcher.command(case.placement, program, self.options.rate)
        return subprocess.Popen(command, env={**os.environ, **values}, stdout=log, stderr=log)


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file.read().splitlines()]


def wait_for(job, result, path):
    """Waits for the job's end, or, where the launcher may hang, for all that can be told; what is to
    happen to a node happens in between. Returns when the end came, None: it did not."""
    case = result.case
    late = time.monotonic() + HANG_SECONDS
    while time.monotonic() < late:
        if job.poll() is not None:
            return time.monotonic()
        lines = read_lines(path)
        words = [line for line in lines if "victim" in line]
        if words and result.death is None:
            if case.action in disaster.KINDS:
                result.death = time.monotonic()
                disaster.strike(case.action, words[0]["pid"])
            else:
                result.death = words[0]["ns"] / 1e9
        told = len(lines) - len(words)
        if case.placement.nodes and told == (case.survivors() if words else case.placement.ranks):
            return time.monotonic()
        time.sleep(0.005)
    return None


def names_the_lost(case, line):
    return any(f"rank {lost} on host " in line["text"] for lost in case.loses[line["rank"]])


def check_survivor(result, line):
    case = result.case
    who = f"rank {line['rank']}"
    told = f"{who} in {line['where']}: {line['status']}, {line['text']}"
    delay = line["ns"] / 1e9 - result.death
    if line["wrong"]:
        result.fault("wrong", f"{who}: {line['wrong']}")
    if line["status"] == 0:
        if case.point not in LATE_POINTS:
            result.fault("no error", who)
    elif case.ends_by_timeout():
        if line["where"] != "init" or delay > 1 + INIT_TIMEOUT_MS / 1e3:
            result.fault("other error", told)
        return
    elif line["status"] != RANK_LOST or not names_the_lost(case, line):
        result.fault("other error", told)
    if line["status"] != 0:
        result.delays.append(delay)
        result.texts.append(line["text"])
    result.leaves.append(line["left_ns"] / 1e9 - result.death)


def check_lines(result, lines, is_spared):
    case = result.case
    survivors = [line for line in lines if "rank" in line]
    if result.death is None:
        bad = [line for line in survivors if line["status"] != 0 or line["wrong"]]
        if bad or len(survivors) != case.placement.ranks:
            result.fault("broken", f"without a death: {survivors}")
        return
    if any(line["rank"] in case.lost for line in survivors):
        result.fault("undead", "the rank did not go down")
    expected = {True: case.survivors(), None: 1, False: 0}[is_spared]
    if len(survivors) < expected:
        told = sorted(line["rank"] for line in survivors)
        result.fault("silent", f"of {expected} survivors only ranks {told} told of it")
    for line in survivors:
        check_survivor(result, line)


def check_end(result, job, end, options):
    """Of a launcher that ends the job by itself."""
    if job.returncode == 0:
        result.fault("status", "the job's exit status is 0")
    if end - result.death > END_SECONDS * options.slack:
        result.fault("slow end", f"the job ended {end - result.death:.2f} s after the death")


def run(job_of, case, options):
    result = Result(case)
    with tempfile.NamedTemporaryFile("r", prefix="dtrain-kill-") as file, \
            tempfile.TemporaryFile("w+") as log:
        job = job_of.start(case, file.name, log)
        end = wait_for(job, result, file.name)
        if end is None:
            result.fault("hang", f"not done after {HANG_SECONDS} s")
        lines = read_lines(file.name)
        words = [line for line in lines if "victim" in line]
        if words and result.death is None:
            result.death = words[0]["ns"] / 1e9
        finish(job, case, result, end is not None)
        if job.returncode == SKIPPED:
            log.seek(0)
            print(log.read(), end="")
            sys.exit(SKIPPED)
        check_lines(result, lines, job_of.launcher.spares(case.action, case.point))
        if options.launcher == "default" and end and result.death and not case.placement.nodes:
            check_end(result, job, end, options)
        if result.faults:
            log.seek(0)
            result.fault("", f"it printed: {log.read().strip()}")
    return result


def finish(job, case, result, is_over):
    """Ends the job, and looks at what it has left."""
    if case.placement.nodes:
        # The nodes go with the job, and mpirun may never end: what counts is the ranks.
        late = time.monotonic() + isolated.SETTLE_SECONDS
        while ranks_left() and time.monotonic() < late:
            time.sleep(0.01)
        if is_over and ranks_left():
            result.fault("left", f"processes: {ranks_left()}")
    if job.poll() is None:
        job.kill()
    job.wait()
    left = isolated.leftovers()
    if left:
        result.fault("left", left)
        isolated.clean()


def ranks_left():
    return [pid for pid, name in isolated.processes().items() if name == "victim"]


# ---- Figures --------------------------------------------------------------------------------


def quantile(values, fraction):
    return sorted(values)[min(len(values) - 1, int(fraction * len(values)))]


def print_table(title, groups):
    print(f"\n{title:<22} {'runs':>5} {'errors':>6} {'median ms':>10} {'p99 ms':>9} {'max ms':>9} "
          f"{'left max ms':>12}")
    for name, results in sorted(groups.items()):
        delays = [1e3 * delay for result in results for delay in result.delays]
        leaves = [1e3 * leave for result in results for leave in result.leaves] or [0]
        if delays:
            print(f"{name:<22} {len(results):>5} {len(delays):>6} {quantile(delays, .5):>10.2f} "
                  f"{quantile(delays, .99):>9.2f} {max(delays):>9.2f} {max(leaves):>12.2f}")
        else:
            print(f"{name:<22} {len(results):>5} {0:>6} {'':>10} {'':>9} {'':>9} {max(leaves):>12.2f}")


def group(results, key):
    groups = collections.defaultdict(list)
    for result in results:
        groups[key(result)].append(result)
    return groups


def leave_bar(case):
    return PART_SECONDS if case.placement.nodes and case.point in LATE_POINTS else LEAVE_SECONDS


def is_late(result, slack):
    bar = BAR_SECONDS["cluster" if result.case.placement.nodes else "node"] * slack
    return any(delay > bar for delay in result.delays) or \
        any(leave > leave_bar(result.case) * slack for leave in result.leaves)


def summarize(results, options):
    reached = [result for result in results if result.death is not None]
    print_table("placement", group(reached, lambda result: str(result.case.placement)))
    print_table("point", group(reached, lambda result: result.case.point))
    faulty = [result for result in results if result.faults]
    late = [result for result in reached if is_late(result, options.slack)]
    print(f"\n{len(results)} runs, in {len(reached)} of them somebody went down; "
          f"{len(faulty)} with faults, {len(late)} later than the bar"
          + (f" times {options.slack:g}" if options.slack != 1 else ""))
    for result in late:
        worst = max(result.delays + result.leaves)
        print(f"LATE: {result.case}: {1e3 * worst:.1f} ms (load {result.load:.1f})")
    for result in faulty:
        kinds = sorted({kind for kind, _ in result.faults if kind})
        told = "; ".join(f"{kind}: {text}" if kind else text for kind, text in result.faults)
        print(f"BAD ({', '.join(kinds)}): {result.case}: {told}")
    if options.json:
        write_json(reached, options.json)
    return 1 if faulty or late else 0


def write_json(results, path):
    """Appends, so that figures of several batches can be put together."""
    with open(path, "a", encoding="utf-8") as file:
        for result in results:
            case = result.case
            json.dump({"placement": str(case.placement), "seed": case.seed, "rank": case.victim,
                       "point": case.point, "nth": case.nth, "action": case.action,
                       "delays": result.delays, "leaves": result.leaves, "load": result.load,
                       "faults": result.faults, "texts": result.texts[:1]}, file)
            file.write("\n")


# ---- Choice ---------------------------------------------------------------------------------


def parse():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("victim", help="the program of victim.c")
    parser.add_argument("--runs", type=int, default=20, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the first run (%(default)s)")
    parser.add_argument("--on", nargs="+", default=["2", "3", "4"], metavar="PLACEMENT",
                        help="in turn; 3 ranks of this machine, or 3x2: nodes x ranks (2 3 4)")
    parser.add_argument("--seeds", metavar="FILE",
                        help="lines 'placement seed', in place of --runs, --seed and --on")
    parser.add_argument("--only", nargs="+", choices=sorted(POINTS) + ["init-mpi"],
                        metavar="POINT", help="of these points alone")
    parser.add_argument("--harm", nargs="+", choices=disaster.KINDS, default=[],
                        help="not a rank goes down but its node, or its node's link")
    parser.add_argument("--seconds", type=float, help="start no run after so long")
    parser.add_argument("--mpirun", default="mpirun",
                        help="the launcher, of Open MPI 4 or 5 or MPICH (%(default)s)")
    parser.add_argument("--launcher", choices=MODES, default="patient",
                        help="patient: it is told to leave survivors alone; ulfm: and MPI's own "
                        "fault tolerance is on; default: it ends them, and the job has to end in "
                        "time")
    parser.add_argument("--rate", help="of the links between nodes, as 200mbit (no limit)")
    parser.add_argument("--slack", type=float, default=1, metavar="FACTOR",
                        help="of times, on a machine that does other things too")
    parser.add_argument("--json", metavar="FILE", help="append what each run gave")
    options = parser.parse_args()
    options.victim = os.path.abspath(options.victim)
    return options


def choose(options):
    points = options.only or list(POINTS)
    if options.harm:
        points = [point for point in points if point not in EARLY_POINTS + LATE_POINTS]
    if options.seeds:
        with open(options.seeds, encoding="utf-8") as file:
            rows = [line.split("#")[0].split() for line in file]
        return [Case(Placement(row[0]), int(row[1]), points, []) for row in rows if row]
    return [Case(Placement(options.on[i % len(options.on)]), options.seed + i, points, options.harm)
            for i in range(options.runs)]


def main():
    isolated.enter()
    options = parse()
    begin = time.monotonic()
    results = []
    job_of = Job(options)
    for case in choose(options):
        if options.seconds and time.monotonic() - begin > options.seconds:
            break
        results.append(run(job_of, case, options))
    sys.exit(summarize(results, options))


if __name__ == "__main__":
    main()
