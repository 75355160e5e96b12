#!/usr/bin/env python3
"""check_resources.py REPORT PTX - what nvcc says of the kernels: REPORT is the output of
-Xptxas -v for all architectures, PTX the intermediate code. Exit status 1 with a line for each
kernel that spills registers, leaves no room for four blocks of 256 threads on a multiprocessor, or
does not load 16 bytes at a time."""

import re
import sys

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
REGISTERS_MAX = 64  # 65,536 / (4 * 256)
WIDE = re.compile(r"dt_move_(copy|f16|bf16|f32|f64)_(few|many)$")
LOADS = 4  # of 16 bytes each, under way before the first store


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


def read_loads(text):
    """{kernel: number of streaming loads of 16 bytes}"""
    parts = re.split(r"\.entry (\w+)", text)
    wide = r"ld\.global\.cs\.v4\.[ubf]32"
    return {name: len(re.findall(wide, body)) for name, body in zip(parts[1::2], parts[2::2])}


def faults_of(report, loads):
    kernels = sorted({kernel for _, kernel in report})
    if len(kernels) < 21:
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
    for kernel in filter(WIDE.match, kernels):
        if loads.get(kernel, 0) < LOADS:
            yield f"{kernel}: {loads.get(kernel, 0)} loads of 16 bytes"


def self_test():
    sample = ("ptxas info : Compiling entry function 'dt_move_f32_few' for 'sm_80'\n"
              "    0 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\n"
              "ptxas info : Used 80 registers, used 0 barriers\n")
    report = read_report(sample)
    assert report == {("sm_80", "dt_move_f32_few"): {"spills": 12, "registers": 80}}, report
    texts = list(faults_of(report, read_loads(".entry dt_move_f32_few\nld.global.cs.v4.u32")))
    assert any("12 bytes" in t for t in texts) and any("1 loads" in t for t in texts), texts


def main():
    self_test()
    with open(sys.argv[1], encoding="utf-8") as file:
        report = read_report(file.read())
    with open(sys.argv[2], encoding="utf-8") as file:
        loads = read_loads(file.read())
    faults = list(faults_of(report, loads))
    print("\n".join(faults))
    for (architecture, kernel), entry in sorted(report.items()):
        print(f"{architecture:7} {kernel:24} {entry.get('registers')} registers")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
