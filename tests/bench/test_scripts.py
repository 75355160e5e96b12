#!/usr/bin/env python3
"""test_scripts.py - whether the benchmark's scripts read their inputs; nothing is measured."""

import json
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

sys.dont_write_bytecode = True

import cases
import contestants
import load
import report


def stored_results(runs):
    machine = {"processor": "p", "family": "f", "cores": 2, "L2": "1", "L3": "1", "virtual": "no",
               "memory": "1 GiB", "system": "s", "kernel": "k", "compiler": "c", "source": "s"}
    return {"date": "2000-01-01", "machine": machine, "limit_percent": 3,
            "peers": {"gloo": [False, "not installed"]}, "failed": {"oneccl": "no fabric"},
            "contestants": {"openmpi4": {"title": "Open MPI 4", "commands": ["mpirun"]}},
            "runs": runs}


def run_of(name, others, rows):
    return {"contestant": name, "round": 1, "others_percent": others, "rows": rows}


class Scripts(unittest.TestCase):
    def test_sets_are_those_of_the_models(self):
        found = {name: (len(counts), sum(counts)) for name, (_, counts) in cases.SETS.items()}
        self.assertEqual(found, {"resnet50": (161, 25557032), "bert-base": (199, 109482240),
                                 "small": (1000, 256000)})

    def test_parts_cover_all_cases(self):
        for contestant in contestants.everyone("build"):
            if not isinstance(contestant, contestants.Idle):
                cases_of_parts = [case for part in contestant.parts() for case in part]
                self.assertEqual(cases_of_parts, contestant.sizes + contestant.sets)

    def test_proc_stat_is_read(self):
        busy, steal = load.busy_seconds("cpu  100 200 300 999 999 1 2 50 0 0\ncpu0 1 1\n")
        self.assertAlmostEqual(busy * load.TICKS, 603)
        self.assertAlmostEqual(steal * load.TICKS, 50)

    def test_output_of_peers_is_read(self):
        peer = contestants.Contestant("a", "A", "a", [], [])
        rows = peer.read('noise\n{"case": "4", "mode": "", "median_us": 1.5, "min_us": 1}\n'
                         '{"case": "set:x/resnet50.txt", "mode": "each", "median_us": 2}\n', "")
        self.assertEqual([row["case"] for row in rows], ["4", "resnet50"])

    def test_output_of_dtrain_bench_is_read(self):
        row = {"model": "", "tensors": 1, "bytes": 4, "errors": 0, "median_us": 2.0, "min_us": 1.0,
               "vs": {"memcpy": {"median_us": 1.0}, "mpi": {"median_us": 1.0}}}
        with tempfile.TemporaryDirectory() as folder:
            peer = contestants.Dtrain("a", "A", "", [], [])
            Path(folder, "json").write_text(json.dumps([row]), encoding="ascii")
            modes = [found["mode"] for found in peer.read("", folder)]
            self.assertEqual(modes, ["", "copy", "mpi"])
            Path(folder, "json").write_text(json.dumps([{**row, "errors": 1}]), encoding="ascii")
            with self.assertRaises(ValueError):
                peer.read("", folder)

    def test_quiet_runs_outweigh_disturbed_ones(self):
        runs = [run_of("a", 50, [["4", "", 9.0, 1]]), run_of("a", 1, [["4", "", 2.0, 1]]),
                run_of("a", 0, [["4", "", 4.0, 1]]), run_of("b", 50, [["4", "", 7.0, 1]])]
        results = report.Results(stored_results(runs))
        self.assertEqual(results.time("a", "4", ""), 3)
        self.assertEqual(results.time("b", "4", ""), 7)
        self.assertIsNone(results.time("c", "4", ""))

    def test_a_report_is_written_of_few_results(self):
        rows = [[str(size), mode, 2.0, 1.0] for size in cases.SIZES for mode in ("", "copy")]
        runs = [run_of("dtrain-private", 0, rows), run_of("openmpi4", 9, rows)]
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "results.json")
            source.write_text(json.dumps(stored_results(runs)), encoding="utf-8")
            report.write(source, Path(folder))
            text = Path(folder, "benchmarks.md").read_text(encoding="utf-8")
            xml.etree.ElementTree.parse(Path(folder, "benchmarks.svg"))
        self.assertIn("not measured: not installed", text)
        self.assertIn("some cases of `openmpi4` have no run", text)


if __name__ == "__main__":
    unittest.main()
