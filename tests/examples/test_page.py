#!/usr/bin/env python3
"""test_page.py PAGE COUNT COMPILE-COMMAND … -- RUN-COMMAND …

Takes every program out of a page, each followed by what it prints, compiles it and runs it. Each
rank prints into a file of its own, since a launcher may mix pieces of lines; the lines of all may
come in any order. There are COUNT programs or more: a page of another form would have none."""

import glob
import os
import re
import subprocess
import sys
import tempfile

PAGE = sys.argv[1]
SPLIT = sys.argv.index("--")
COMPILE, RUN = sys.argv[3:SPLIT], sys.argv[SPLIT + 1:]
INTO_FILE = ["sh", "-c", 'exec "$0" >"$(mktemp printed.XXXXXX)"']


def programs():
    with open(PAGE, encoding="utf-8") as file:
        text = file.read()
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title = section.splitlines()[0]
        code = re.findall(r"^```c\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)
        prints = re.findall(r"^```text\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)
        if len(code) != 1 or len(prints) != 1:
            sys.exit(f"{title}: {len(code)} programs with {len(prints)} outputs")
        yield title, code[0], prints[0]


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
