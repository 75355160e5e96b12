#!/usr/bin/env python3
"""flight.py MPIRUN.SH FLAVOR LAUNCHER RANKS PROGRAM call|signal|abort|kill READER

Runs test_flight in a directory of its own, and looks at the dumps that it leaves: each is lines of
JSON, also when it is cut anywhere, and the reader names the last rank.
"""

import glob
import json
import os
import subprocess
import sys
import tempfile


def check(condition, what):
    if not condition:
        sys.exit(f"flight.py: {what}")


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def check_dump(lines, size, how):
    check(lines[0]["type"] == "dump" and lines[0]["size"] == size, f"head {lines[0]}")
    check(lines[-1] == {"type": "end"}, f"end {lines[-1]}")
    ranks = {line["rank"]: line for line in lines if line["type"] == "rank"}
    check(sorted(ranks) == list(range(size)), f"ranks {sorted(ranks)}")
    ops = [line for line in lines if line["type"] == "op"]
    for rank in range(size):
        mine = [op for op in ops if op["rank"] == rank]
        check(len(mine) == ranks[rank]["submitted"], f"rank {rank}: {len(mine)} operations")
        before = mine[0]
        check(before["name"] == "before" and before["status"] == 0 and before["place"] == 1,
              f"first {before}")
        check(before["submitted_ns"] <= before["agreed_ns"] <= before["finished_ns"]
              <= ranks[rank]["time_ns"], f"times {before}")
        waits = [op for op in mine if op["name"] == "w"]
        check(len(waits) == (0 if rank == size - 1 else 1), f"rank {rank} submitted {waits}")
        for op in waits:
            check(op["place"] == 0 and op["agreed_ns"] is None, f"w is {op}")
            # The rank that writes may be ahead of the others in hearing of the end.
            check(op["status"] in {"abort": (1, -16), "kill": (1, -7)}.get(how, (1,)), f"w is {op}")


def check_reader(reader, path, size, how):
    told = subprocess.run([reader, path], capture_output=True, text=True, timeout=30, check=True)
    wanted = f"Behind: rank {size - 1} on host"
    check(wanted in told.stdout, f"{wanted!r} is not in {told.stdout}")
    reasons = {"abort": "the loss is not a number", "kill": f"Lost: rank {size - 1} on host"}
    check(reasons.get(how, "asked for by") in told.stdout, told.stdout)
    machine = subprocess.run([reader, "--json", path], capture_output=True, text=True, timeout=30,
                             check=True)
    found = json.loads(machine.stdout)
    check(found["behind"] == [size - 1], machine.stdout)
    check(found["lost"] == (size - 1 if how == "kill" else None), machine.stdout)


def main():
    launch, flavor, launcher, ranks, program, how, reader = sys.argv[1:]
    size = int(ranks)
    if flavor != "openmpi" and how == "kill":
        print("skipped: this launcher ends the other ranks at once when one goes down")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="dtrain-flight-") as folder:
        # By default mpirun ends the others when the first leaves, also one that is writing.
        environment = {**os.environ, "OMPI_MCA_orte_enable_recovery": "1"}
        subprocess.run([launch, flavor, launcher, ranks, program, how, folder], env=environment,
                       check=how in ("call", "signal"), timeout=50)
        paths = glob.glob(os.path.join(folder, "*.jsonl"))
        check(len(paths) == 1, f"{len(paths)} files in {os.listdir(folder)}")
        check_dump(read(paths[0]), size, how)
        check_reader(reader, paths[0], size, how)


main()
