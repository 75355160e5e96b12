#!/usr/bin/env python3
"""test_bench.py MPIRUN FLAVOR MPIEXEC RANKS DTRAIN_BENCH - runs dtrain-bench as a user would and
checks what it prints and what it writes: never how fast it was."""

import json
import os
import subprocess
import sys
import tempfile

START, BENCH = sys.argv[1:5], sys.argv[5]
RANKS = int(START[3])
ALONE = START[0] == "none"


def run(*options, expect=0):
    command = ([] if ALONE else START) + [BENCH, *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # mpirun may change the number of a failure, not that it is one.
    if (done.returncode != 0) != (expect != 0) or (ALONE and done.returncode != expect):
        sys.exit(f"{' '.join(options)}: status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def rows(*options):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        done = run(*options, "-w", "1", "-n", "3", "--json", path)
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    table = [line for line in done.stdout.splitlines() if line and line.lstrip()[0].isdigit()]
    assert len(table) == len(found), done.stdout
    for row in found:
        lossy = row["codec"].startswith(("int8", "topk"))
        assert row["errors"] == (None if lossy else 0) and row["ranks"] == RANKS, row
        assert 0 < row["min_us"] <= row["median_us"], row
        assert row["algbw_gbps"] >= 0 and row["busbw_gbps"] >= 0, row
    return found


def check_sizes():
    peers = ["--vs", "memcpy"] + ([] if ALONE else ["--vs", "mpi"])
    found = rows("allreduce", "-b", "4", "-e", "64K", "-f", "16", *peers)
    assert [row["bytes"] for row in found] == [4, 64, 1024, 16384], found
    for row in found:
        assert row["op"] == "allreduce" and row["dtype"] == "float32", row
        assert set(row["vs"]) == set(peers[1::2]), row
        for peer in row["vs"].values():
            assert peer["median_us"] > 0 and peer["ratio"] > 0, row


def check_kinds():
    for dtype in ("float64", "float16", "bfloat16", "int8", "uint16", "int64"):
        for op in ("sum", "average", "min", "max", "product"):
            rows("allreduce", "-b", "1000", "-e", "1000", "-d", dtype, "-o", op, "--out-of-place")
    peers = [] if ALONE else ["--vs", "mpi"]
    for kind in ("broadcast", "reduce", "reducescatter", "allgather", "alltoall", "gather",
                 "scatter"):
        for buffers, tensors in (("private", "1"), ("library", "3")):
            for row in rows(kind, "-b", "4", "-e", "300K", "-f", "270", "--buffers", buffers,
                            "--tensors", tensors, *peers):
                assert row["op"] == kind and row["bytes"] >= 4, row
    found = rows("broadcast", "-b", "1M", "-e", "1M", "--buffers", "library")
    assert found[0]["op"] == "broadcast" and found[0]["buffers"] == "library", found
    found = rows("allreduce", "-b", "1K", "-e", "1K", "--tensors", "300")
    assert found[0]["tensors"] == 300 and found[0]["bytes"] == 300 * 1024, found


def check_codecs():
    count = 1 << 18
    wire = {"fp16": 2 * count, "bf16": 2 * count, "int8": count + count // 256 * 4,
            "topk:0.05": 8 * -(-count // 20)}
    for codec, wire_bytes in wire.items():
        found = rows("allreduce", "-b", "1M", "-e", "1M", "--codec", codec, "--tensors", "2")
        assert found[0]["codec"] == codec and found[0]["wire_bytes"] == 2 * wire_bytes, found
    assert rows("allreduce", "-b", "1M", "-e", "1M")[0]["wire_bytes"] == 1 << 20


def check_models():
    known = {"resnet50": (161, 25557032), "vgg16": (32, 138357544),
             "bert-base": (199, 109482240), "gpt2": (148, 124439808)}
    for name, (tensors, elements) in known.items():
        found = rows("allreduce", "--model", name, "-d", "int8")
        assert (found[0]["tensors"], found[0]["bytes"]) == (tensors, elements), found


def check_mistakes():
    for options in (["allreduce", "-b", "x"], ["nothing"], ["allreduce", "-d", "float3"],
                    ["allreduce", "--vs", "you"],
                    ["allreduce", "--codec", "zip"], ["broadcast", "--codec", "fp16"], ["allreduce", "-b", "2M", "-e", "1M"], []):
        done = run(*options, expect=2)
        assert done.stderr.count("dtrain-bench: ") == 1 and "--help" in done.stderr, done.stderr
    done = run("--help")
    assert "usage: dtrain-bench" in done.stdout and not done.stderr, done.stderr
    done = run("allreduce", "-e", "4", "--json", "/nonexistent/x.json", expect=1)
    assert "/nonexistent/x.json" in done.stderr, done.stderr


check_sizes()
check_kinds()
check_codecs()
check_models()
check_mistakes()
print(f"dtrain-bench on {RANKS} rank(s): ok")
