#!/usr/bin/env python3
"""test_nodes.py MPIRUN CASE PROGRAM … - what has to hold on several nodes; the cases are below.

Exit status 77: skipped, and the output says why.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time

from nodes import SKIPPED, Placement, Runner, expect

RANK_LOST = -7
CALLS = 2  # that each survivor reports
LOSS_SECONDS = 20
# Bars are 0.1 s in a node and 2 s between nodes; these are for a machine that does other things too.
KILL_SECONDS = 2
LINK_SECONDS = 4
# By default mpirun ends the survivors after a second.
PATIENT_MPIRUN = {"OMPI_MCA_odls_base_sigkill_timeout": "60"}


def case_topology(runner, where):
    """Ranks, local ranks and cross ranks are right."""
    for text in ("2x1", "2x2", "3x1", "3x2", "2x2,1", "3x1,3,2", "2x2 by node", "2x2,1 by node"):
        placement = Placement(text)
        seen = sorted(runner.run(placement, where).splitlines())
        wanted = expected_topology(placement)
        expect(seen == wanted, f"{placement} gives\n" + "\n".join(seen) + "\nnot\n" + "\n".join(wanted))


def expected_topology(placement):
    nodes = placement.node_of_ranks()
    homogeneous = int(len(set(placement.counts)) == 1)
    lines = []
    for rank, node in enumerate(nodes):
        local = nodes[:rank].count(node)
        # The nodes that have such a local rank, in the order of their first ranks.
        cross = [n for n in sorted(set(nodes), key=nodes.index) if nodes.count(n) > local]
        lines.append(f"rank {rank} of {len(nodes)}, local {local} of {nodes.count(node)}, "
                     f"cross {cross.index(node)} of {len(cross)}, homogeneous {homogeneous}, "
                     f"node{node}")
    return sorted(lines)


def case_results(runner, *programs):
    """All types, reductions and roots, and what goes wrong, as on one node."""
    for text in ("2x1", "2x2", "2x2,1", "3x1", "3x2", "2x2 by node", "2x2 without shared memory"):
        for program in programs:
            runner.run(Placement(text), program)


def case_operations(runner, *programs):
    """Every operation, process sets, joined ranks and gradient sets, as on one node."""
    for text in ("2x2", "3x1", "3x2", "2x2,1"):
        for program in programs:
            runner.run(Placement(text), program)


def case_lost_rank(runner, program):
    """A killed rank: the others get RANK_LOST, and a text that names the rank and its host. A rank of
    another one's node, a node's lowest rank, and rank 0; while all wait, and while all move data."""
    for how in ("kill", "busy-kill"):
        for text, lost in (("2x2", 3), ("2x2", 2), ("2x2", 0), ("3x1", 1), ("2x2,1", 2)):
            placement = Placement(text)
            reports = lose(runner, placement, program, lost, how, placement.ranks - 1)
            name = f"rank {lost} on host node{placement.node_of_ranks()[lost]} "
            check_survivors(placement, reports, {rank: name for rank in range(placement.ranks)
                                                 if rank != lost}, KILL_SECONDS)


def case_lost_link(runner, program):
    """A node's link goes down, while all wait and while all move data: all others lose a rank of that
    node, and it loses one of theirs."""
    for how in ("link", "busy-link"):
        for text, node in (("2x2", 1), ("3x1", 1), ("2x2,1", 0)):
            placement = Placement(text)
            nodes = placement.node_of_ranks()
            reports = lose(runner, placement, program, nodes.index(node), how, placement.ranks)
            names = {rank: f"rank {nodes.index(node)} on host node{node} " for rank in
                     range(placement.ranks) if nodes[rank] != node}
            names.update({rank: r"rank \d on host node[^%d] " % node for rank in
                          range(placement.ranks) if nodes[rank] == node})
            check_survivors(placement, reports, names, LINK_SECONDS)


def case_lost_node(runner, program):
    """A node goes down with all its processes, and nobody sees their connections end."""
    for how in ("node", "busy-node"):
        for text, node in (("2x2", 1), ("3x1", 1), ("3x1", 2), ("3x2", 1)):
            placement = Placement(text)
            nodes = placement.node_of_ranks()
            name = f"rank {nodes.index(node)} on host node{node} "
            names = {rank: name for rank in range(placement.ranks) if nodes[rank] != node}
            reports = lose(runner, placement, program, nodes.index(node), how, len(names))
            check_survivors(placement, reports, names, LINK_SECONDS)


def lose(runner, placement, program, lost, how, survivors):
    with tempfile.NamedTemporaryFile("r") as file:
        job = runner.start(placement, program, lost, file.name, how, environment=PATIENT_MPIRUN)
        reports = await_reports(job, file, 1 + CALLS * survivors)
    print(reports)
    return reports


def await_reports(job, file, count):
    """The reports, when all are there or no more will come. mpirun is not waited for: over several
    nodes it sometimes hangs after the loss of a rank."""
    reports = ""
    late = time.monotonic() + LOSS_SECONDS
    ended = False
    while reports.count("\n") < count and not ended and time.monotonic() < late:
        ended = job.poll() is not None
        reports += file.read()
        time.sleep(0.02)
    if job.poll() is None:
        job.kill()
    if job.wait() == SKIPPED:
        sys.exit(SKIPPED)
    return reports


def check_survivors(placement, reports, names, seconds):
    happened = float(re.search("^happened at (.*)$", reports, re.M)[1])
    slowest = 0
    for rank, name in names.items():
        for call in ("first", "next"):
            line = re.search(f"^rank {rank}, {call} at ([0-9.]*): (.*)$", reports, re.M)
            expect(line, f"on {placement}: rank {rank} did not report its {call} call")
            expect(re.match(f"{RANK_LOST}, .*{name}", line[2]),
                   f"rank {rank}'s {call} call: {line[2]}: no {RANK_LOST} with '{name}'")
            slowest = max(slowest, float(line[1]) - happened)
    print(f"on {placement}: the last heard of it after {slowest:.3f} s", flush=True)
    expect(slowest < seconds, f"on {placement}: that is more than {seconds} s")


def case_limited_rate(runner, bench):
    """Right results on slow links; how fast they are is for rate.py."""
    for text in ("2x2", "3x1"):
        runner.run(Placement(text), bench, "allreduce", "-b", "64K", "-e", "1M", "-n", 2, "-w", 1,
                   options=["--rate", "200mbit"])


def case_cleanup(runner):
    """A run that is killed leaves no process behind; the namespaces go with the last of them."""
    placement = Placement("2x2")
    for kill in (signal.SIGKILL, signal.SIGTERM):
        mark = f"{os.getpid()}.{kill.value}"
        job = runner.start(placement, "sh", "-c", f"echo {mark}; sleep 100", stdout=subprocess.PIPE)
        line = job.stdout.readline()
        if job.poll() == SKIPPED:
            print(line, end="")
            sys.exit(SKIPPED)
        expect(line.strip() == mark, f"printed: {line}")
        expect(processes_with(mark), "no process is found while the ranks run")
        job.send_signal(kill)
        job.wait()
        late = time.monotonic() + LOSS_SECONDS
        while processes_with(mark) and time.monotonic() < late:
            time.sleep(0.02)
        expect(not processes_with(mark), f"processes are left after signal {kill.value}")


def processes_with(text):
    """The processes, other than this one, whose command line has the text."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                command = file.read()
        except OSError:
            continue  # it ended
        if text in command and int(pid) != os.getpid():
            found.append(pid)
    return found


def main():
    runner = Runner(sys.argv[1])
    globals()["case_" + sys.argv[2]](runner, *sys.argv[3:])


if __name__ == "__main__":
    main()
