#!/usr/bin/env python3
"""summarize.py FOLDER - adds up what tests/run.sh did.

FOLDER holds one <phase>.xml a run of ctest (its JUnit output), <phase>.again.xml for a second run
of its failed tests, and two lists of lines "phase<TAB>text": failed.txt, phases that did not get as
far as their tests, and skipped.txt. A test that passed the second time is unsteady: it counts as
passed while there are no more than two of them.
Prints every skipped test with its reason and every unsteady or failed one with the end of its
output; the last line is "N passed, N failed, N skipped". Exit status 1 when anything failed or
nothing ran.
"""

import os
import re
import sys
import xml.etree.ElementTree as ElementTree

TAIL_LINES = 40
MOST_UNSTEADY = 2
# CMocka's own skips, inside a program that passes.
CMOCKA_SKIPPED = re.compile(r"^\[\s+SKIPPED \] (\w+)$", re.M)


def tail(text, lines):
    kept = [line.rstrip() for line in (text or "").splitlines() if line.strip()]
    return kept[-lines:]


def skip_reason(output):
    lines = tail(output, 1000)
    for line in reversed(lines):
        if "skip" in line.lower():
            return line.strip()
    return lines[-1].strip() if lines else "no reason given"


def cmocka_skips(output):
    """(case, reason) of each skipped case; the reason is the line before it, when there is one."""
    lines = tail(output, 100000)
    found = []
    for index, line in enumerate(lines):
        match = CMOCKA_SKIPPED.match(line)
        # The list of skipped tests at the end repeats them.
        if match and match.group(1) not in [case for case, _ in found]:
            before = lines[index - 1] if index else ""
            found.append((match.group(1), "no reason given" if before.startswith("[") else before))
    return found


class Totals:
    def __init__(self):
        self.passed = []  # name
        self.failed = []  # (name, lines)
        self.unsteady = []  # (name, lines) of the run that failed
        self.skipped = []  # (name, reason)

    def add_case(self, phase, case):
        name = f"{phase}: {case.get('name')}"
        output = case.findtext("system-out") or ""
        failure = case.find("failure")
        if case.find("skipped") is not None and case.get("status") != "fail":
            self.skipped.append((name, skip_reason(output)))
        elif failure is not None or case.get("status") != "run":
            reason = failure.get("message") if failure is not None else "not run"
            self.failed.append((name, tail(output, TAIL_LINES) + [reason or "failed"]))
        else:
            self.passed.append(name)
            for inner, reason in cmocka_skips(output):
                self.skipped.append((f"{name}, case {inner}", reason))

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.unsteady += other.unsteady
        self.skipped += other.skipped

    def add_run(self, phase, path):
        try:
            cases = ElementTree.parse(path).getroot().findall("testcase")
        except ElementTree.ParseError as error:
            self.failed.append((phase, [f"{path}: {error}"]))
            return
        if not cases:
            self.failed.append((phase, ["no test ran"]))
        for case in cases:
            self.add_case(phase, case)

    def add_second_run(self, again):
        self.unsteady = [test for test in self.failed if test[0] in again.passed]
        self.failed = [test for test in self.failed if test[0] not in again.passed]
        self.passed += [name for name, _ in self.unsteady]


def totals_of_phase(folder, phase):
    totals = Totals()
    totals.add_run(phase, os.path.join(folder, f"{phase}.xml"))
    second = os.path.join(folder, f"{phase}.again.xml")
    if os.path.exists(second):
        again = Totals()
        again.add_run(phase, second)
        totals.add_second_run(again)
    return totals


def read_list(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [tuple(line.rstrip("\n").split("\t", 1)) for line in file]


def show(what, tests):
    for name, lines in tests:
        print(f"{what} {name}")
        for line in lines:
            print(f"    {line}")


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    folder = sys.argv[1]
    totals = Totals()
    for name in sorted(os.listdir(folder)):
        if name.endswith(".xml") and not name.endswith(".again.xml"):
            totals.add(totals_of_phase(folder, name[:-len(".xml")]))
    if len(totals.unsteady) > MOST_UNSTEADY:
        unsteady = [name for name, _ in totals.unsteady]
        totals.passed = [name for name in totals.passed if name not in unsteady]
        totals.failed += totals.unsteady
        totals.unsteady = []
    totals.failed += [(phase, [text]) for phase, text in read_list(f"{folder}/failed.txt")]
    totals.skipped += read_list(f"{folder}/skipped.txt")

    for name, reason in totals.skipped:
        print(f"SKIPPED {name}: {reason}")
    show("UNSTEADY (passed when run again)", totals.unsteady)
    show("FAILED", totals.failed)
    print(f"{len(totals.passed)} passed, {len(totals.failed)} failed, {len(totals.skipped)} skipped")
    return 1 if totals.failed or not totals.passed else 0


if __name__ == "__main__":
    sys.exit(main())
