"""launchers.py - the launchers that the fault tests know, and what each does to the survivors when a
rank goes down. That decides what a test can ask for: who is killed cannot tell of the loss."""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cluster"))

from nodes import SKIPPED  # noqa: E402

# How a launcher can be started: as users do; so that it leaves survivors alone; with MPI's own
# fault tolerance.
MODES = ["default", "patient", "ulfm"]

# While there is no detector yet: other nodes learn of a death by dtrain_init's time limit alone.
EARLY_POINTS = ("init-hello", "init-connect", "init-share")

# {kind: {mode: (options, environment)}}
HOW = {
    "openmpi4": {"default": ([], {}),
                 "patient": ([], {"OMPI_MCA_orte_enable_recovery": "1",
                                  "OMPI_MCA_odls_base_sigkill_timeout": "60"})},
    "openmpi5": {"default": ([], {}),
                 "patient": (["--enable-recovery"], {}),
                 "ulfm": (["--with-ft", "ulfm"], {})},
    "mpich": {"default": ([], {}),
              "patient": (["-disable-auto-cleanup"], {})},
}


class Launcher:
    """An mpirun, by its path, and how it is started."""

    def __init__(self, path, mode):
        self.path, self.mode = path, mode
        try:
            answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            skip(f"{path} is not there")
        self.version = answer.stdout.partition("\n")[0]
        self.kind = kind_of(answer.stdout)
        if mode not in HOW.get(self.kind, {}):
            skip(f"{path} is '{self.version}', which has no mode '{mode}'")
        self.options, self.environment = HOW[self.kind][mode]

    def command(self, placement, program, rate=None):
        """The command line, for ranks of this machine or of simulated nodes."""
        if not placement.nodes:
            flavor = "hydra" if self.kind == "mpich" else "openmpi"
            script = os.path.join(HERE, "..", "support", "mpirun.sh")
            return [script, flavor, self.path, str(placement.ranks), *self.options, *program]
        script = os.path.join(HERE, "..", "cluster", "run_on_nodes.sh")
        counts = ",".join(map(str, placement.counts))
        limits = ["--rate", rate] if rate else []
        return [script, str(placement.nodes), counts, "--mpirun", self.path,
                "--mpirun-options", " ".join(self.options), *limits, "--", *program]

    def spares(self, action, point):
        """Whether survivors live on when a rank goes down so: True, False, or None: for a moment,
        in which some of them can tell."""
        if self.kind == "mpich":
            # Its proxy kills the others of the node with the first that a signal has ended, though
            # told not to clean up, and fails itself when one goes while it exchanges addresses.
            return self.mode == "patient" and action == "exit" and not point.startswith("init")
        if self.mode == "default":
            # All at once while MPI starts, and when the first of them leaves.
            return False if point.startswith(("init", "shutdown")) else None
        if self.kind == "openmpi5" and point.startswith("init"):
            return False  # its daemons end the others when one leaves with an error so early
        return True


def kind_of(version):
    if "Open MPI) 4" in version or "OpenRTE" in version:
        return "openmpi4"
    if "Open MPI)" in version or "PRRTE" in version:
        return "openmpi5"
    return "mpich" if "HYDRA" in version else "other"


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)
