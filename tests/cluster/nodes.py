"""nodes.py - runs MPI programs on one node, or on several through run_on_nodes.sh, for tests."""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SKIPPED = 77


class Placement:
    """How ranks are spread over nodes, as text: "4" on this machine as it is, "2x2" for two nodes
    of two ranks, "2x2,1" for two nodes of two and one; with " by node" ranks go to the nodes in
    turn; with " without shared memory" ranks of a node do not share memory."""

    def __init__(self, text):
        self.text = text
        self.by_node = " by node" in text
        self.shares = " without shared memory" not in text
        nodes, _, counts = text.split()[0].rpartition("x")
        self.nodes = int(nodes or 0)
        self.counts = [int(count) for count in counts.split(",")]
        if self.nodes and len(self.counts) == 1:
            self.counts *= self.nodes
        self.ranks = sum(self.counts)

    def __str__(self):
        return self.text

    def node_of_ranks(self):
        """The node of each rank."""
        left = list(self.counts)
        nodes = []
        while len(nodes) < self.ranks:
            for node in range(len(left)):
                take = min(left[node], 1 if self.by_node else left[node])
                nodes += [node] * take
                left[node] -= take
        return nodes


class Runner:
    def __init__(self, mpirun):
        self.mpirun = mpirun

    def command(self, placement, *options):
        if not placement.nodes:
            here = os.path.join(HERE, "..", "support", "mpirun.sh")
            return [here, "openmpi", self.mpirun, str(placement.ranks)]
        script = os.path.join(HERE, "run_on_nodes.sh")
        counts = ",".join(map(str, placement.counts))
        by_node = ["--by-node"] if placement.by_node else []
        return [script, str(placement.nodes), counts, "--mpirun", self.mpirun, *by_node, *options,
                "--"]

    def start(self, placement, *program, options=(), environment=None, stdout=None):
        environment = {**os.environ, **(environment or {})}
        environment["DTRAIN_SHARED_MEMORY"] = "on" if placement.shares else "off"
        arguments = list(map(str, program))
        print(f"on {placement}: {' '.join(arguments)}", flush=True)
        return subprocess.Popen([*self.command(placement, *options), *arguments],
                                env=environment, stdout=stdout, text=True)

    def run(self, placement, *program, options=(), seconds=110):
        """What the program printed. Ends the test when the program failed, or when this machine
        cannot run it."""
        with self.start(placement, *program, options=options, stdout=subprocess.PIPE) as job:
            try:
                output, _ = job.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                job.kill()
                sys.exit(f"FAILED: on {placement}: not done after {seconds} s")
        if job.returncode:
            print(output, end="")
        if job.returncode == SKIPPED and placement.nodes:
            sys.exit(SKIPPED)
        expect(job.returncode == 0, f"on {placement}: exit status {job.returncode}")
        return output


def expect(condition, text):
    if not condition:
        sys.exit(f"FAILED: {text}")
