#!/usr/bin/env python3
"""test_flight.py DTRAIN_FLIGHT - the reader of dumps, on dumps that are made here."""

import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

READER = sys.argv.pop(1)
S = 1_000_000_000
RANK_LOST = -7


def head(size, rank=0, reason="asked for by a test", version=1):
    return {"type": "dump", "version": version, "library": "0.1.0", "rank": rank, "size": size,
            "time_ns": 100 * S, "reason": reason}


def rank_line(rank, time_ns=100 * S, pid=None):
    return {"type": "rank", "rank": rank, "host": f"node{rank}", "pid": pid or 1000 + rank,
            "time_ns": time_ns, "submitted": 9, "agreed": 8, "started": 8, "finished": 7}


def op(rank, number, name, place=0, stage=None, status=None, set_=0, kind="allreduce"):
    """An operation that has come to `stage`: 1 submitted, 2 agreed, 3 started, 4 finished."""
    stage = stage or (4 if place else 1)
    if status is None:
        status = 0 if stage == 4 else 1
    line = {"type": "op", "rank": rank, "number": number, "kind": kind, "name": name, "set": set_,
            "dtype": "float32", "count": 3, "place": place, "status": status, "state": "any"}
    for i, key in enumerate(("submitted", "agreed", "started", "finished")):
        line[key + "_ns"] = (50 + number) * S + i if i < stage else None
    return line


END = {"type": "end"}


def encode(line):
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


class Reader(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.count = 0

    def write(self, lines):
        path = os.path.join(self.folder.name, f"{self.count}.jsonl")
        self.count += 1
        with open(path, "wb") as file:
            for line in lines:
                file.write(line if isinstance(line, bytes) else encode(line))
        return path

    def run_reader(self, *arguments, status=0):
        done = subprocess.run([READER, *arguments], capture_output=True, text=True, timeout=30)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def judge(self, *files):
        paths = [self.write(lines) for lines in files]
        text = self.run_reader(*paths).stdout
        return json.loads(self.run_reader("--json", *paths).stdout), text

    def test_rank_that_has_not_submitted_is_behind(self):
        found, text = self.judge(
            [head(3)] + [rank_line(r) for r in range(3)]
            + [op(r, 1, "w0", place=1) for r in range(3)] + [op(0, 2, "w1"), op(2, 2, "w1"), END])
        self.assertEqual(found["behind"], [1])
        self.assertEqual(found["waiting"], [{"kind": "allreduce", "name": "w1", "set": 0,
                                             "agreed": False, "there": [0, 2], "late": [1]}])
        self.assertIn("allreduce 'w1': submitted by ranks 0, 2; missing: rank 1", text)
        self.assertIn("Behind: rank 1 on host node1 (pid 1001): has not submitted allreduce 'w1'",
                      text)
        self.assertIn("First difference, after allreduce 'w0' (number 1 that was agreed on)", text)
        self.assertIn("  rank 1: nothing", text)

    def test_other_name_on_one_rank_is_the_first_difference(self):
        found, text = self.judge(
            [head(3)] + [rank_line(r) for r in range(3)] + [op(r, 1, "w", place=1) for r in range(3)]
            + [op(0, 2, "x_1"), op(1, 2, "x_1"), op(2, 2, "x"), END])
        self.assertEqual(found["behind"], [2])
        for line in ("rank 0: allreduce 'x_1'", "rank 2: allreduce 'x'"):
            self.assertIn(line, text)

    def test_rank_that_has_not_begun_is_behind(self):
        found, text = self.judge(
            [head(2), rank_line(0), rank_line(1), op(0, 1, "w", place=1, stage=3),
             op(1, 1, "w", place=1, stage=2), END])
        self.assertEqual(found["behind"], [1])
        self.assertIn("has not come as far as the others in allreduce 'w'", text)

    def test_rank_that_does_not_know_of_the_agreement_is_behind(self):
        found, _ = self.judge(
            [head(2), rank_line(0), rank_line(1), op(0, 1, "w", place=1, stage=3), op(1, 1, "w"),
             END])
        self.assertEqual(found["behind"], [1])

    def test_all_equally_far_blames_nobody(self):
        found, text = self.judge(
            [head(2), rank_line(0), rank_line(1)]
            + [op(r, 1, "w", place=1, stage=3) for r in range(2)] + [END])
        self.assertEqual(found["behind"], [])
        self.assertIn("All ranks have come equally far", text)

    def test_finished_world_has_nothing_to_tell(self):
        found, text = self.judge([head(1), rank_line(0), op(0, 1, "w", place=1), END])
        self.assertEqual((found["behind"], found["waiting"], found["lost"]), ([], [], None))
        self.assertIn("No operation is unfinished.", text)

    def test_lost_rank_is_named_with_what_waited(self):
        reason = "rank 1 on host node1 (pid 1001) is lost: it died"
        found, text = self.judge(
            [head(2, reason=reason), rank_line(0), rank_line(1), op(0, 1, "w", status=RANK_LOST),
             END])
        self.assertEqual((found["lost"], found["behind"]), (1, [1]))
        self.assertIn("Lost: rank 1 on host node1 (pid 1001)", text)

    def test_errors_that_are_over_are_not_unfinished(self):
        found, _ = self.judge(
            [head(2), rank_line(0), rank_line(1), op(0, 1, "late", stage=1, status=-6),
             op(0, 2, "w", place=1), op(1, 1, "w", place=1), END])
        self.assertEqual(found["waiting"], [])

    def test_process_set_waits_for_its_members_alone(self):
        found, _ = self.judge(
            [head(4), {"type": "set", "set": 1, "ranks": [1, 3]}] + [rank_line(r) for r in range(4)]
            + [op(1, 1, "w", set_=1), END])
        self.assertEqual(found["waiting"][0]["late"], [3])
        self.assertEqual(found["behind"], [3])

    def test_files_of_several_nodes_are_put_together_and_the_newest_counts(self):
        old = [head(2), rank_line(0, pid=1), op(0, 5, "old"), {"type": "missing", "rank": 1}, END]
        new = [head(2, rank=1), rank_line(0, time_ns=200 * S, pid=2), op(0, 6, "new"),
               rank_line(1), END]
        for files in ((old, new), (new, old)):
            found, _ = self.judge(*files)
            self.assertEqual([wait["name"] for wait in found["waiting"]], ["new"])
            self.assertEqual(found["ranks"], [0, 1])

    def test_unknown_rank_is_said_to_be(self):
        found, text = self.judge([head(2), rank_line(0), op(0, 1, "w"),
                                  {"type": "missing", "rank": 1}, END])
        self.assertEqual(found["behind"], [1])
        self.assertIn("Behind: rank 1: nothing is known of it, and others wait for it in "
                      "allreduce 'w'", text)
        self.assertIn("1 of 2 ranks", text)
        self.assertIn("     1  nothing is known of it", text)

    def test_names_of_any_kind_come_through(self):
        name = 'a"b\\c {"x": [1, 2]}, ünï'
        found, _ = self.judge([head(2), rank_line(0), rank_line(1), op(0, 1, name), END])
        self.assertEqual(found["waiting"][0]["name"], name)

    def test_cut_file_is_read_as_far_as_it_goes(self):
        lines = [head(2), rank_line(0), rank_line(1), op(0, 1, "w"), END]
        whole = b"".join(encode(line) for line in lines)
        first = len(encode(lines[0]))
        for length in range(first, len(whole)):
            found = json.loads(self.run_reader("--json", self.write([whole[:length]])).stdout)
            self.assertEqual(found["cut"], length < len(whole))
        self.assertIn("end before their last line", self.run_reader(self.write([whole[:-3]])).stdout)

    def test_damaged_lines_are_counted_and_passed_over(self):
        bad = [b"garbage\n", b"{\n", b'{"type":"op"}\n', b'{"type":"op","rank":7}\n', b"\xff\x00\n",
               b'{"type":"rank","rank":-1,"pid":3}\n', b'{"type":"op\n']
        _, text = self.judge([head(2)] + bad + [rank_line(0), rank_line(1), op(0, 1, "w"), END])
        self.assertIn(f"{len(bad)} line(s) could not be read", text)
        self.assertIn("Behind: rank 1", text)

    def test_random_changes_never_crash_it(self):
        lines = [head(3), {"type": "set", "set": 1, "ranks": [0, 1]}]
        lines += [rank_line(r) for r in range(3)] + [op(r, n, f"w{n}", place=n % 3, set_=n % 2)
                                                     for r in range(3) for n in range(1, 6)] + [END]
        whole = b"".join(encode(line) for line in lines)
        dice = random.Random(7)
        for _ in range(150):
            damaged = bytearray(whole)
            for _ in range(dice.randint(1, 20)):
                damaged[dice.randrange(len(damaged))] = dice.randrange(256)
            done = subprocess.run([READER, self.write([bytes(damaged)])], capture_output=True,
                                  timeout=30)
            self.assertIn(done.returncode, (0, 2), damaged)

    def test_what_is_no_dump_is_refused(self):
        self.assertIn("no dump", self.run_reader(self.write([b"hello\n"]), status=2).stderr)
        self.assertIn("no dump", self.run_reader(self.write([]), status=2).stderr)
        self.assertIn("No such file", self.run_reader("/no/such/file", status=2).stderr)
        newer = self.run_reader(self.write([head(2, version=2)]), status=2).stderr
        self.assertIn("newer than this program", newer)
        other = self.run_reader(self.write([head(2), END]), self.write([head(3), END]), status=2)
        self.assertIn("of a world of 2 ranks and of one of 3", other.stderr)

    def test_usage_is_told(self):
        self.assertIn("usage: dtrain-flight", self.run_reader("--help").stdout)
        self.assertIn("usage: dtrain-flight", self.run_reader(status=2).stderr)
        self.assertIn("--help", self.run_reader("--wrong", status=2).stderr)


unittest.main()
