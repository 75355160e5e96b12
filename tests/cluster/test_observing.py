#!/usr/bin/env python3
"""test_observing.py MPIRUN STALL FLIGHT READER - reports and dumps of ranks on several nodes, which
answer through their failure detectors."""

import json
import os
import subprocess
import sys
import tempfile

from nodes import Placement, Runner, expect


def read(reader, path):
    told = subprocess.run([reader, "--json", path], capture_output=True, text=True, timeout=30,
                          check=True)
    return json.loads(told.stdout)


def main():
    mpirun, stall, flight, reader = sys.argv[1:]
    runner = Runner(mpirun)
    for text in ("2x1", "2x2", "3x2,1,1"):
        runner.run(Placement(text), stall)
    # The last rank is stopped. On a node with others its leader answers for it; alone it cannot.
    for text, known in (("2x2", [0, 1, 2, 3]), ("3x2,1,1", [0, 1, 2])):
        with tempfile.TemporaryDirectory(prefix="dtrain-flight-") as folder:
            runner.run(Placement(text), flight, "call", folder)
            found = read(reader, os.path.join(folder, "call.jsonl"))
        expect(found["ranks"] == known, f"{text}: known are {found['ranks']}, not {known}")
        expect(found["behind"] == [3], f"{text}: behind are {found['behind']}")
        expect(not found["cut"], f"{text}: the dump is cut")


main()
