#!/usr/bin/env python3
"""check_resources.py REPORT PTX - what nvcc says of the kernels: REPORT is the output of
-Xptxas -v for all architectures, PTX the intermediate code. Exit status 1 with a line for each
kernel that spills registers, leaves no room for four blocks of 256 threads on a multiprocessor, or
does not move 16 bytes at a time."""

import re
import sys

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
REGISTERS_MAX = 64  # 65,536 / (4 * 256)
# How many streaming loads, other loads and stores of 16 bytes a kernel has at least. A move, or a
# sum of squares, has four loads under way at once; an update loads and stores parameters and up to
# two arrays of state, and loads gradients, which are shorter words where they have 16 bits.
WIDE = [(re.compile(r"dt_move_((rounded_)?(f16|bf16)|copy|f32|f64)_(few|many)$"), (4, 0, 4)),
        (re.compile(r"dt_squares_(f16|bf16|f32|f64)$"), (4, 0, 0)),
        (re.compile(r"dt_update_(f32|f64)$"), (1, 4, 4)),
        (re.compile(r"dt_update_(f16|bf16)$"), (0, 4, 4))]
MOVES = [re.compile(r"ld\.global\.cs\.(v4\.[ubf]32|v2\.[ubf]64)"),
         re.compile(r"ld\.global\.(v4\.[ubf]32|v2\.[ubf]64)"),
         re.compile(r"st\.global\.(v4\.[ubf]32|v2\.[ubf]64)")]


def read_report(text):
    """{(architecture, kernel): {"registers": n, "spills": n}}"""
    found, key = {}, None
    for line in text.splitlines():
        entry = re.search(r"Compiling entry function '(\w+)' for '(\w+)'", line)
        if entry:
            key = (entry.group(2), entry.group(1))
            found[key] = {}
        spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line)
        if spills and key:
            found[key]["spills"] = int(spills.group(1)) + int(spills.group(2))
        registers = re.search(r"Used (\d+) registers", line)
        if registers and key:
            found[key]["registers"] = int(registers.group(1))
    return found


def read_moves(text):
    """{kernel: how many streaming loads, loads and stores of 16 bytes}"""
    parts = re.split(r"\.entry (\w+)", text)
    return {name: tuple(len(kind.findall(body)) for kind in MOVES)
            for name, body in zip(parts[1::2], parts[2::2])}


def faults_of(report, moves):
    kernels = sorted({kernel for _, kernel in report})
    if len(kernels) < 20:
        yield f"only {len(kernels)} kernels in the report"
    for architecture in ARCHITECTURES:
        for kernel in kernels:
            entry = report.get((architecture, kernel), {})
            if "spills" not in entry or "registers" not in entry:
                yield f"{kernel}, {architecture}: not in the report"
            elif entry["spills"] > 0:
                yield f"{kernel}, {architecture}: {entry['spills']} bytes of registers spilled"
            elif entry["registers"] > REGISTERS_MAX:
                yield f"{kernel}, {architecture}: {entry['registers']} registers"
    for kernel in kernels:
        found = moves.get(kernel, (0, 0, 0))
        for pattern, least in WIDE:
            if pattern.match(kernel) and any(a < b for a, b in zip(found, least)):
                yield f"{kernel}: {found} loads and stores of 16 bytes, not {least}"


def self_test():
    sample = ("ptxas info : Compiling entry function 'dt_move_f32_few' for 'sm_80'\n"
              "    0 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\n"
              "ptxas info : Used 80 registers, used 0 barriers\n")
    report = read_report(sample)
    assert report == {("sm_80", "dt_move_f32_few"): {"spills": 12, "registers": 80}}, report
    texts = list(faults_of(report, read_moves(".entry dt_move_f32_few\nld.global.cs.v4.u32")))
    assert any("12 bytes" in t for t in texts) and any("(1, 0, 0)" in t for t in texts), texts


def main():
    self_test()
    with open(sys.argv[1], encoding="utf-8") as file:
        report = read_report(file.read())
    with open(sys.argv[2], encoding="utf-8") as file:
        moves = read_moves(file.read())
    faults = list(faults_of(report, moves))
    print("\n".join(faults))
    for (architecture, kernel), entry in sorted(report.items()):
        print(f"{architecture:7} {kernel:24} {entry.get('registers')} registers")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
