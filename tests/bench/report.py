#!/usr/bin/env python3
"""report.py [RESULTS] [FOLDER] - writes docs/benchmarks.md and docs/benchmarks.svg of what
tests/bench/compare.py has stored."""

import json
import statistics
import sys
from pathlib import Path

import plot
from bars import evaluate, over
from cases import CROWDED_SIZES, SETS, SIZES, TABLE_SIZES, set_title, size_title

HERE = Path(__file__).resolve().parent

# Rows of the tables: title, contestants of which the best counts, and the mode if it is not "".
ROWS = [
    ("**libdtrain, library buffers**", ["dtrain-library"], ""),
    ("**libdtrain, private buffers**", ["dtrain-private"], ""),
    ("plain copy, library buffers", ["dtrain-library"], "copy"),
    ("plain copy, private buffers", ["dtrain-private"], "copy"),
    ("Open MPI 4, defaults", ["openmpi4"], ""),
    ("Open MPI 4, tuned", ["openmpi4-tuned"], ""),
    ("Open MPI 5, defaults", ["openmpi5"], ""),
    ("Open MPI 5, tuned", ["openmpi5-tuned"], ""),
    ("MPICH 4", ["mpich4"], ""),
    ("MPICH 5", ["mpich5"], ""),
    ("Intel MPI", ["intelmpi"], ""),
    ("oneCCL", ["oneccl"], ""),
    ("Gloo, best algorithm", ["gloo-ring", "gloo-bcube", "gloo-ring_chunked",
                                       "gloo-halving_doubling"], ""),
    ("torch.distributed on Gloo", ["torch-gloo"], ""),
    ("Horovod on MPI", ["horovod"], ""),
    ("Horovod on MPI, 0.1 ms cycle", ["horovod-fast"], ""),
    ("Horovod on Gloo", ["horovod-gloo"], ""),
]
PLOTTED = ["**libdtrain, library buffers**", "**libdtrain, private buffers**",
           "plain copy, private buffers", "Open MPI 4, defaults", "Open MPI 4, tuned",
           "Open MPI 5, defaults", "MPICH 4", "MPICH 5", "Intel MPI", "oneCCL",
           "Gloo, best algorithm", "torch.distributed on Gloo", "Horovod on MPI"]
CROWDED = [("**libdtrain, library buffers**", "dtrain-library-x4"),
           ("**libdtrain, private buffers**", "dtrain-private-x4"),
           ("Open MPI 4, yields", "openmpi4-x4"),
           ("Open MPI 4, yields, tuned", "openmpi4-tuned-x4")]


class Results:
    """What was stored: runs that others disturbed count only where there is no other."""

    def __init__(self, stored):
        self.stored = stored
        self.limit = stored["limit_percent"]
        self.runs = {}
        for run in stored["runs"]:
            self.runs.setdefault(run["contestant"], []).append(run)

    def is_quiet(self, run):
        return run["others_percent"] <= self.limit

    def counted(self, name):
        """The runs that count: of those with the same cases the quiet ones, or the quietest."""
        runs = sorted(self.runs.get(name, []), key=lambda run: run["others_percent"])
        quietest = {}
        for run in runs:
            quietest.setdefault(run["rows"][0][0], run)
        return [run for run in runs if self.is_quiet(run) or run in quietest.values()]

    def is_sure(self, name, case):
        """Whether a quiet run has the case."""
        return any(self.is_quiet(run) and any(row[0] == case for row in run["rows"])
                   for run in self.runs.get(name, []))

    def shares(self):
        """How many runs count, and how many of them were disturbed."""
        counted = [run for name in self.runs for run in self.counted(name)]
        return len(counted), sum(not self.is_quiet(run) for run in counted)

    def time(self, name, case, mode):
        """The median over the runs that count, in µs (for "idle" in percent); or None."""
        found = [row[2] for run in self.counted(name) for row in run["rows"]
                 if row[0] == case and row[1] == mode]
        return statistics.median(found) if found else None

    def ratio(self, name, case, mode, rival):
        """The contestant's time over a rival's of the same runs, in which they alternate."""
        ratios = []
        for run in self.counted(name):
            times = {row[1]: row[2] for row in run["rows"] if row[0] == case}
            if times.get(rival) and mode in times:
                ratios.append(times[mode] / times[rival])
        return statistics.median(ratios) if ratios else None

    def best(self, names, case, mode):
        """Copies of a few bytes take less than a clock can tell."""
        if mode == "copy" and case.isdigit() and int(case) < 4096:
            return None
        found = [self.time(name, case, mode) for name in names]
        return min((time for time in found if time is not None), default=None)


# ---- Text ----------------------------------------------------------------------------------


def three_digits(value):
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f}"


def time_text(time):
    if time is None:
        return ""
    return f"{three_digits(time)} µs" if time < 999.5 else f"{three_digits(time / 1e3)} ms"


def ratio_text(ratio):
    if ratio is None:
        return ""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def table(head, rows):
    yield "| " + " | ".join(head) + " |"
    yield "|---" + "|---:" * (len(head) - 1) + "|"
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def value_text(value, unit):
    if value is None:
        return ""
    if unit == "us":
        return time_text(value)
    return f"{value:.2f} %" if unit == "%" else f"{value:.2f}"


# ---- Sections ------------------------------------------------------------------------------


def opening(stored, results):
    machine = stored["machine"]
    counted, disturbed = results.shares()
    yield from ("# Benchmarks", "",
                "libdtrain beside what else reduces gradients on the processors of one machine: "
                "the same sizes and gradient sets, fp32, summed in place by 2 ranks, each bound to "
                "a core, one thread a rank, all in one run of alternating rounds.", "",
                f"Measured on {stored['date']} on {machine['cores']} cores of "
                f"{machine['processor']} ({machine['family']}; L2 {machine['L2']}, L3 "
                f"{machine['L3']}; virtual: {machine['virtual']}), {machine['memory']}, "
                f"{machine['system']}, kernel {machine['kernel']}, {machine['compiler']}, "
                f"source {machine['source']}.", "",
                *([f"**Provisional:** during {disturbed} of the {counted} runs that count others "
                   f"used more than {stored['limit_percent']:g} % of the machine, so that "
                   "times are too long, by different factors; the section on what to keep in mind tells "
                   "whose. The ratios to the copy and to Open MPI's defaults in the first table alternate "
                   "within a run and suffer least.", ""] if disturbed else []),
                "![Time and bandwidth over size](benchmarks.svg)", "",
                "Written by `tests/bench/report.py`, not by hand. To measure again:", "", "```sh",
                "cmake --preset release && cmake --build --preset release",
                "tests/bench/peers.sh      # installs the peers into build/peers: half an hour",
                "tests/bench/compare.py    # measures, into tests/bench/results/results.json",
                "tests/bench/report.py     # writes this document and its plot", "```", "")


def goals(results):
    yield from ("## Goals", "",
                "The last column is the time of libdtrain over that of Horovod on MPI, as it comes "
                "out of the box. The copy is that of the same bytes, in the same kind of buffers, "
                "on both cores at once. It and Open MPI with its defaults alternate with libdtrain "
                "operation by operation, in the same processes and on the same buffers; the other "
                "peers run on their own, in alternating rounds.", "")
    rows = []
    for bar in evaluate(results):
        sign = "≥" if bar.at_least else "≤"
        sure = all(results.is_sure(*run) for run in bar.runs) or bar.found is None
        rows.append((bar.what, f"{sign} {value_text(bar.bound, bar.unit)}",
                     value_text(bar.found, bar.unit),
                     bar.verdict() + ("" if sure else ", disturbed"), ratio_text(bar.horovod)))
    yield from table(("goal", "wanted", "found", "", "over Horovod"), rows)
    for size in (64 << 20, 256 << 20):
        ratio = over(results.time("dtrain-library", str(size), ""),
                     results.time("dtrain-private", str(size), "copy"))
        if ratio is not None:
            yield (f"Library buffers of {size_title(size)} take {ratio:.2f} times the copy between "
                   "*private* buffers, which the kernel may put on larger pages.")
            yield ""


def measured_rows(results):
    return [row for row in ROWS if any(name in results.runs for name in row[1])]


def one_tensor(results):
    yield from ("## One tensor", "", "Medians of the slowest rank's time. An empty cell was not "
                "measured.", "")
    heads = [size_title(size) for size in TABLE_SIZES]
    rows = measured_rows(results)
    yield from table(["", *heads], [[title, *(time_text(results.best(names, str(size), mode))
                                              for size in TABLE_SIZES)]
                                    for title, names, mode in rows])
    for kind in ("library", "private"):
        yield from (f"libdtrain with {kind} buffers, its time over theirs (below 1: libdtrain is "
                    "faster):", "")
        ratios = []
        for title, names, mode in rows:
            if mode or "libdtrain" not in title:
                ratios.append([title, *(ratio_text(over(
                    results.time(f"dtrain-{kind}", str(size), ""),
                    results.best(names, str(size), mode))) for size in TABLE_SIZES)])
        yield from table(["", *heads], ratios)


def set_rows(results):
    for title, names, mode in measured_rows(results):
        if mode == "copy":
            yield title, names, "copy"
        elif "libdtrain" in title or "Horovod" in title:
            yield title, names, "each"
        else:
            yield f"{title}, a call a tensor", names, "each"
            yield f"{title}, packed", names, "packed"


def gradient_sets(results):
    yield from ("## Gradient sets", "",
                "All gradients of a model in backward order, from the first submission to the last "
                "result. libdtrain, Horovod and torch get asynchronous calls, the first two by "
                "name, and fuse as they see fit; the others get a blocking call a tensor, or are "
                "packed into one buffer, reduced and unpacked by the benchmark (torch: into "
                "buckets of 25 MiB, as DistributedDataParallel does).", "")
    heads = ["", *(set_title(name) for name in SETS)]
    rows = [row for row in set_rows(results)
            if any(results.best(row[1], name, row[2]) is not None for name in SETS)]
    yield from table(heads, [[title, *(time_text(results.best(names, name, mode)) for name in SETS)]
                             for title, names, mode in rows])
    for kind in ("library", "private"):
        yield from (f"libdtrain with {kind} buffers, its time over theirs:", "")
        yield from table(heads, [[title, *(ratio_text(over(
            results.time(f"dtrain-{kind}", name, "each"), results.best(names, name, mode)))
            for name in SETS)] for title, names, mode in rows
            if mode == "copy" or "libdtrain" not in title])


def crowded_and_idle(results):
    yield from ("## More ranks than cores", "", "4 ranks on 2 cores, not bound.", "")
    yield from table(["", *(size_title(size) for size in CROWDED_SIZES)],
                     [[title, *(time_text(results.time(name, str(size), ""))
                                for size in CROWDED_SIZES)]
                      for title, name in CROWDED if name in results.runs])
    yield from ("", "At 4 bytes the time goes into the kernel: each of two ranks a core has to run "
                "twice an operation, and 70 % of rank 0's samples (`perf record -e cpu-clock` of "
                "`dtrain-bench allreduce -b 4 -e 4`, on a busy AMD EPYC) are in `sched_yield` and "
                "the switches that it makes. The engine adds about 1 µs a rank for an operation "
                "by name, MPI's own call 0.2 to 0.3 µs. Spinning 2, 5 or 12 times before giving up "
                "the core made it 1.1 to 1.7 times as slow.", "")
    yield from ("## Idle", "", "The processor time of a rank whose program sleeps for 10 seconds "
                "after an allreduce.", "")
    idle = [(title, results.time(name, "idle", "")) for title, name in
            (("**libdtrain**", "idle-dtrain"), ("Horovod on MPI", "idle-horovod"))]
    yield from table(["", "of a core, a rank"], [[title, f"{percent:.2f} %"]
                                                 for title, percent in idle if percent is not None])


def peers(stored, results):
    yield from ("## Versions", "")
    titles = {"openmpi4": "Open MPI 4, Debian", "mpich4": "MPICH 4, Debian",
              "openmpi5": "Open MPI 5, PyPI", "mpich5": "MPICH 5, PyPI",
              "intelmpi": "Intel MPI, PyPI", "oneccl": "oneCCL, PyPI, on Intel MPI",
              "gloo": "Gloo, Debian", "torch": "torch, Debian",
              "horovod": "Horovod, PyPI's source built against Debian's torch"}
    yield from table(["peer", "version"],
                     [[titles.get(name, name), text if there else f"not measured: {text}"]
                      for name, (there, text) in stored["peers"].items()])
    for name, reason in stored["failed"].items():
        if name in results.runs:
            yield f"`{name}` failed in a round: {reason}"
        else:
            yield f"`{name}` is not measured, it failed: {reason}"
        yield ""


def caveats(stored, results):
    disturbed = [name for name in results.runs
                 if not all(map(results.is_quiet, results.counted(name)))]
    yield from ("## What to keep in mind", "",
                "- A round fills the buffers (their owner's core wrote them last), waits for all "
                "ranks, and takes the time. Up to 4 KiB 50 operations are timed together, up to "
                "64 KiB 10, with the filling between them included (5 from Python). libdtrain "
                "is timed by `dtrain-bench`, the C and C++ peers by `tests/bench/peers/runner.c`, "
                "torch and Horovod from Python, which adds a few microseconds to each call.",
                "- A process may be slow for as long as it lives, in any program here, by a factor "
                "of up to four; medians over few rounds can be such a process's.",
                "- Numbers are medians over rounds of the medians within each. Slow peers get "
                "fewer repetitions in a round: at least 5, or what fits into 0.4 s.",
                "- The tuning of Open MPI is the best that was found for large buffers; others run "
                "with their defaults, Intel MPI and oneCCL over shared memory only. Someone who "
                "knows them well may find more.",
                "- Two ranks, one machine, one kind of processor. The gap is another one where the "
                "cores do not share a cache.",
                "- Open MPI 4 with one tuning for all sizes is not its best at every size.", "")
    yield from ("Others may have used the machine in the meantime. The share of all cores that "
                "they used during the runs that count (from `/proc/stat`, less what the benchmark "
                "itself used):", "")
    yield from table(["", "runs", "that count", "others used, median", "most"],
                     [[f"`{name}`", str(len(runs)), str(len(results.counted(name))),
                       f"{statistics.median(shares):.1f} %", f"{max(shares):.1f} %"]
                      for name, runs in results.runs.items()
                      for shares in [[run["others_percent"] for run in results.counted(name)]]])
    if disturbed:
        names = ", ".join(f"`{name}`" for name in disturbed)
        yield (f"**Not quiet:** some cases of {names} have no run during which others used less "
               f"than {stored['limit_percent']:g} % of the machine. Their numbers are those of a "
               "shared machine.")
        yield ""


def commands(stored):
    yield from ("## Commands", "", "From the root of the sources, with `OMP_NUM_THREADS=1`; sizes "
                "in bytes. `$TMP` is an empty folder. Of each program one command is shown; the "
                "others name other cases.", "", "```sh")
    for name, contestant in stored["contestants"].items():
        yield from (f"# {name}", contestant["commands"][0])
    yield "```"


def lines(results, value, sizes):
    for title, names, mode in ROWS:
        if title not in PLOTTED:
            continue
        found = [(size, results.best(names, str(size), mode)) for size in sizes]
        points = [(size, value(size, time)) for size, time in found if time]
        if points:
            yield plot.Line(title.strip("*"), points, "libdtrain" in title, mode == "copy")


def write(source, folder):
    stored = json.loads(source.read_text(encoding="utf-8"))
    results = Results(stored)
    parts = [*opening(stored, results), *goals(results), *one_tensor(results),
             *gradient_sets(results), *crowded_and_idle(results), *peers(stored, results),
             *caveats(stored, results), *commands(stored)]
    (folder / "benchmarks.md").write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")
    picture = plot.svg([
        ("Time of an allreduce, 2 ranks", "µs",
         list(lines(results, lambda size, time: time, [s for s in SIZES if s <= 1 << 20]))),
        ("Bytes of the tensor over time, 2 ranks", "GB/s",
         list(lines(results, lambda size, time: size / time / 1e3,
                    [s for s in SIZES if s >= 4096])))])
    (folder / "benchmarks.svg").write_text(picture, encoding="utf-8")


def main():
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "results" / "results.json",
          Path(sys.argv[2]) if len(sys.argv) > 2 else HERE.parents[1] / "docs")


if __name__ == "__main__":
    main()
