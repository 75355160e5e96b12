#!/usr/bin/env python3
"""summarize.py FOLDER - adds up what tests/run.sh did.

FOLDER holds one <phase>.xml a run of ctest (its JUnit output) and two lists of lines
"phase<TAB>text": failed.txt, phases that did not get as far as their tests, and skipped.txt.
Prints every skipped test with its reason and every failed one with the end of its output; the
last line is "N passed, N failed, N skipped". Exit status 1 when anything failed or nothing ran.
"""

import os
import re
import sys
import xml.etree.ElementTree as ElementTree

TAIL_LINES = 40
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
        self.passed = 0
        self.failed = []  # (name, lines)
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
            self.passed += 1
            for inner, reason in cmocka_skips(output):
                self.skipped.append((f"{name}, case {inner}", reason))

    def add_run(self, path):
        phase = os.path.basename(path)[:-len(".xml")]
        try:
            cases = ElementTree.parse(path).getroot().findall("testcase")
        except ElementTree.ParseError as error:
            self.failed.append((phase, [f"{path}: {error}"]))
            return
        if not cases:
            self.failed.append((phase, ["no test ran"]))
        for case in cases:
            self.add_case(phase, case)


def read_list(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [tuple(line.rstrip("\n").split("\t", 1)) for line in file]


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    folder = sys.argv[1]
    totals = Totals()
    for name in sorted(os.listdir(folder)):
        if name.endswith(".xml"):
            totals.add_run(os.path.join(folder, name))
    totals.failed += [(phase, [text]) for phase, text in read_list(f"{folder}/failed.txt")]
    totals.skipped += read_list(f"{folder}/skipped.txt")

    for name, reason in totals.skipped:
        print(f"SKIPPED {name}: {reason}")
    for name, lines in totals.failed:
        print(f"FAILED {name}")
        for line in lines:
            print(f"    {line}")
    print(f"{totals.passed} passed, {len(totals.failed)} failed, {len(totals.skipped)} skipped")
    return 1 if totals.failed or totals.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
