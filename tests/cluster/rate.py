#!/usr/bin/env python3
"""rate.py BENCH - allreduce over slow links, against what its bytes need at the measured rate.

BENCH is dtrain-bench. Each node has a link of a limited rate. An allreduce has to send at least
2 (N - 1) / N times its bytes out of each of N nodes, however many ranks a node has; the run
measures what TCP makes of a link, and so how long that takes. Prints a table, and writes it as JSON
with --json. With --bar 15 the exit status is 1 when a time is more than 15 % above that.
"""

import argparse
import json
import os
import re
import sys
import tempfile

from nodes import Placement, Runner, expect


def options():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("bench", help="dtrain-bench")
    parser.add_argument("--mpirun", default="mpirun", help="Open MPI's mpirun")
    parser.add_argument("--rate", default="200mbit", help="of each link (%(default)s)")
    parser.add_argument("--placements", nargs="+", default=["2x2", "3x1"],
                        help="nodes x ranks a node (%(default)s)")
    parser.add_argument("--mebibytes", type=int, nargs="+", default=[1, 4, 16],
                        help="of the vector (%(default)s)")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--bar", type=float, metavar="PERCENT", help="how much longer is too long")
    parser.add_argument("--bar-from", type=int, default=8, metavar="MIB",
                        help="the bar is for vectors from this size on (%(default)s)")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


def measure(runner, placement, mebibytes, args):
    with tempfile.NamedTemporaryFile("r") as file:
        size = f"{mebibytes}M"
        output = runner.run(placement, args.bench, "allreduce", "-b", size, "-e", size,
                            "-d", args.dtype, "-n", args.iterations, "-w", 1, "--json", file.name,
                            options=["--rate", args.rate, "--measure"], seconds=600)
        results = json.load(file)
    link = re.search(r"^link: one way (\d+) B/s, around (\d+) B/s$", output, re.M)
    expect(link, f"the links were not measured: {output}")
    expect(len(results) == 1 and results[0]["errors"] == 0, f"wrong results: {results}")
    nodes = placement.nodes
    sent = 2 * (nodes - 1) / nodes * results[0]["bytes"]
    least = sent / int(link[1])
    took = results[0]["median_us"] / 1e6
    return {"nodes": nodes, "ranks": placement.ranks, "rate": args.rate,
            "bytes": results[0]["bytes"], "dtype": args.dtype,
            "link_one_way_bytes_per_s": int(link[1]), "link_around_bytes_per_s": int(link[2]),
            "optimal_ms": round(least * 1e3, 2), "median_ms": round(took * 1e3, 2),
            "min_ms": round(results[0]["min_us"] / 1e3, 2), "ratio": round(took / least, 3)}


def main():
    args = options()
    runner = Runner(args.mpirun)
    rows = [measure(runner, Placement(text), mebibytes, args)
            for text in args.placements for mebibytes in args.mebibytes]
    print(f"{'nodes':>5} {'ranks':>5} {'MiB':>5} {'link MB/s':>10} {'around':>7} "
          f"{'optimal ms':>11} {'median ms':>10} {'ratio':>6}")
    for row in rows:
        print(f"{row['nodes']:>5} {row['ranks']:>5} {row['bytes'] >> 20:>5} "
              f"{row['link_one_way_bytes_per_s'] / 1e6:>10.2f} "
              f"{row['link_around_bytes_per_s'] / 1e6:>7.2f} {row['optimal_ms']:>11.1f} "
              f"{row['median_ms']:>10.1f} {row['ratio']:>6.3f}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
            file.write(os.linesep)
    if args.bar is not None:
        slow = [row for row in rows if row["bytes"] >> 20 >= args.bar_from
                and row["ratio"] > 1 + args.bar / 100]
        sys.exit(f"{len(slow)} of {len(rows)} took more than {args.bar:g} % longer" if slow else 0)


if __name__ == "__main__":
    main()
