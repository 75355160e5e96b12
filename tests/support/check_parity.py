#!/usr/bin/env python3
"""check_parity.py ROOT - every test that docs/parity.md names is there, and every row names one.

A name is `test_…`, a function of a C or Python test, or `tests/…`, a file. Rows of the last section
may say "not yet" instead.
"""

import os
import re
import sys

ROOT = sys.argv[1]
SUFFIXES = (".c", ".py")


def functions():
    """The names of all functions of tests that begin with test_."""
    found = set()
    for folder, _, files in os.walk(os.path.join(ROOT, "tests")):
        for name in files:
            if name.endswith(SUFFIXES):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    found |= set(re.findall(r"^\s*(?:static void|def) (test_\w+)\(", file.read(),
                                            flags=re.MULTILINE))
    return found


def faults(lines, known):
    for number, line in enumerate(lines, 1):
        if not line.startswith("|") or re.match(r"\|(---|\s*Horovod\s*\|)", line):
            continue
        names = [name for name in re.findall(r"`([^`]+)`", line)
                 if name.startswith(("test_", "tests/"))]
        if not names and "not yet" not in line:
            yield f"docs/parity.md:{number}: no test is named"
        for name in names:
            there = os.path.exists(os.path.join(ROOT, name)) if "/" in name else name in known
            if not there:
                yield f"docs/parity.md:{number}: there is no {name}"


KNOWN = functions()
# It would find what it is for.
EXAMPLES = ["| a | b | `test_that_is_none` |", "| a | b | c |", "| a | `tests/none.c` |"]
if len(list(faults(EXAMPLES, KNOWN))) != len(EXAMPLES) or list(faults(["| a | not yet |"], KNOWN)):
    sys.exit("check_parity.py does not see what it should")
with open(os.path.join(ROOT, "docs/parity.md"), encoding="utf-8") as page:
    FOUND = list(faults(page, KNOWN))
print("\n".join(FOUND) or "every test of docs/parity.md is there")
sys.exit(bool(FOUND))
