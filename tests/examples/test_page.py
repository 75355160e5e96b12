#!/usr/bin/env python3
"""test_page.py PAGE[:FRAME] COUNT COMPILE-COMMAND … -- RUN-COMMAND …

Takes every program out of a page, each followed by what it prints, compiles it and runs it. Each
rank prints into a file of its own, since a launcher may mix pieces of lines; the lines of all may
come in any order. There are COUNT programs or more: a page of another form would have none.

A header as PAGE has examples in its comments, indented, which are no programs: FRAME is a program
in which they take the places of the lines @1@, @2@, …, and at whose end is what it prints."""

import glob
import os
import re
import subprocess
import sys
import tempfile

PAGE, _, FRAME = sys.argv[1].partition(":")
SPLIT = sys.argv.index("--")
COMPILE, RUN = sys.argv[3:SPLIT], sys.argv[SPLIT + 1:]
INTO_FILE = ["sh", "-c", 'exec "$0" >"$(mktemp printed.XXXXXX)"']


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def framed():
    """The program that FRAME makes of a header's examples."""
    examples = re.findall(r"(?<= \*\n)(?: \*     .*\n)+(?= \*\n)", read(PAGE))
    code = read(FRAME)
    for i, example in enumerate(examples, 1):
        if f"\n@{i}@\n" not in code:
            sys.exit(f"{FRAME} has no place for example {i}:\n{example}")
        code = code.replace(f"@{i}@\n", re.sub(r"^ \* ?", "", example, flags=re.MULTILINE))
    prints = re.search(r"/\* Prints:\n(.*?) \*/", code, flags=re.DOTALL)[1]
    return f"{len(examples)} examples", code, re.sub(r"^ \* ", "", prints, flags=re.MULTILINE)


def programs():
    if FRAME:
        yield framed()
        return
    text = read(PAGE)
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title = section.splitlines()[0]
        code = re.findall(r"^```c\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)
        prints = re.findall(r"^```text\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)
        if len(code) != len(prints):
            sys.exit(f"{title}: {len(code)} programs with {len(prints)} outputs")
        for program in zip(code, prints):
            yield title, *program


def take_printed(folder):
    text = ""
    for path in glob.glob(os.path.join(folder, "printed.*")):
        with open(path, encoding="utf-8") as file:
            text += file.read()
        os.remove(path)
    return text


def check(title, code, prints, folder):
    source, program = os.path.join(folder, "program.c"), os.path.join(folder, "program")
    with open(source, "w", encoding="utf-8") as file:
        file.write(code)
    done = subprocess.run([part.replace("@SOURCE@", source).replace("@PROGRAM@", program)
                           for part in COMPILE], stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{title}: does not compile:\n{done.stderr}")
    done = subprocess.run([*RUN, *INTO_FILE, program], stderr=subprocess.PIPE, text=True, cwd=folder)
    printed = take_printed(folder)
    if done.returncode != 0 or sorted(printed.splitlines()) != sorted(prints.splitlines()):
        sys.exit(f"{title}: status {done.returncode}, printed\n{printed}not\n{prints}"
                 f"stderr:\n{done.stderr}")
    print(f"{title}: ok")


COUNT = 0
with tempfile.TemporaryDirectory() as scratch:
    for program_of_page in programs():
        check(*program_of_page, scratch)
        COUNT += 1
if COUNT < int(sys.argv[2]):
    sys.exit(f"only {COUNT} programs in {PAGE}, not {sys.argv[2]}")
