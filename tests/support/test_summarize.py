#!/usr/bin/env python3
"""test_summarize.py - what summarize.py makes of the reports of tests/run.sh."""

import os
import subprocess
import sys
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "summarize.py")
OUTCOMES = {"pass": ("run", ""), "fail": ("fail", '<failure message="Failed"/>'),
            "skip": ("notrun", '<skipped message="SKIP_RETURN_CODE=77"/>')}


def write_report(folder, name, **tests):
    cases = ""
    for test, outcome in tests.items():
        status, inside = OUTCOMES[outcome]
        cases += (f'<testcase name="{test}" status="{status}">{inside}'
                  f"<system-out>what {test} printed</system-out></testcase>")
    with open(os.path.join(folder, f"{name}.xml"), "w", encoding="utf-8") as file:
        file.write(f"<testsuite>{cases}</testsuite>")


def summarize(folder):
    done = subprocess.run([sys.executable, SCRIPT, folder], stdout=subprocess.PIPE, text=True)
    return done.returncode, done.stdout.splitlines()


class Summary(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def test_counts_of_all_phases_are_added_up(self):
        write_report(self.folder, "ci", a="pass", b="skip")
        write_report(self.folder, "tsan", a="pass")
        status, lines = summarize(self.folder)
        self.assertEqual((status, lines[-1]), (0, "2 passed, 0 failed, 1 skipped"))
        self.assertIn("SKIPPED ci: b: what b printed", lines)

    def test_failure_is_shown_and_is_the_exit_status(self):
        write_report(self.folder, "ci", a="pass", b="fail")
        status, lines = summarize(self.folder)
        self.assertEqual((status, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))
        self.assertEqual(lines[:2], ["FAILED ci: b", "    what b printed"])

    def test_passed_when_run_again_is_unsteady_and_said(self):
        write_report(self.folder, "ci", a="pass", b="fail")
        write_report(self.folder, "ci.again", b="pass")
        status, lines = summarize(self.folder)
        self.assertEqual((status, lines[-1]), (0, "2 passed, 0 failed, 0 skipped"))
        self.assertEqual(lines[0], "UNSTEADY (passed when run again) ci: b")

    def test_failed_twice_or_not_run_again_is_a_failure(self):
        write_report(self.folder, "ci", a="fail", b="fail", c="fail")
        write_report(self.folder, "ci.again", b="fail", c="skip")
        status, lines = summarize(self.folder)
        self.assertEqual((status, lines[-1]), (1, "0 passed, 3 failed, 0 skipped"))

    def test_unsteady_tests_of_a_number_are_failures(self):
        write_report(self.folder, "ci", a="fail", b="fail", c="pass")
        write_report(self.folder, "ci.again", a="pass", b="pass")
        write_report(self.folder, "mpich", a="fail")
        write_report(self.folder, "mpich.again", a="pass")
        status, lines = summarize(self.folder)
        self.assertEqual((status, lines[-1]), (1, "1 passed, 3 failed, 0 skipped"))

    def test_phase_that_could_not_be_built_is_a_failure(self):
        write_report(self.folder, "ci", a="pass")
        with open(os.path.join(self.folder, "failed.txt"), "w", encoding="utf-8") as file:
            file.write("tsan\tthe build failed\n")
        status, lines = summarize(self.folder)
        self.assertEqual((status, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))

    def test_nothing_that_ran_is_no_success(self):
        self.assertEqual(summarize(self.folder), (1, ["0 passed, 0 failed, 0 skipped"]))


if __name__ == "__main__":
    unittest.main()
