"""Who takes part in the comparison, how it is started, and how its output is read."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from cases import CROWDED_SIZES, SETS, SIZES

ROOT = Path(__file__).resolve().parents[2]
PEERS = Path("build/peers")  # everything is named from the root, where all programs are started

# Found by trying on one machine: the ring in segments, single copies by the kernel.
OPENMPI4_TUNING = ["--mca", "pml", "ob1", "--mca", "coll_tuned_use_dynamic_rules", "1",
                   "--mca", "coll_tuned_allreduce_algorithm", "5",
                   "--mca", "coll_tuned_allreduce_algorithm_segmentsize", "262144"]
CMA = ["--mca", "btl_vader_single_copy_mechanism", "cma"]


@dataclass
class Contestant:
    name: str
    title: str
    needs: str  # a peer of build/peers/peers.tsv, or "" for libdtrain
    launch: list  # the launcher with its options
    program: list
    environment: dict = field(default_factory=dict)
    sizes: list = field(default_factory=lambda: list(SIZES))
    sets: list = field(default_factory=lambda: list(SETS))
    ranks: int = 2

    def parts(self):
        """Its cases, shared out over runs of a few seconds: quiet moments may be short."""
        bounds = [0, 64 << 10, 16 << 20, max(self.sizes, default=0)]
        sizes = [[size for size in self.sizes if low < size <= high]
                 for low, high in zip(bounds, bounds[1:])]
        return [part for part in sizes if part] + [[name] for name in self.sets]

    def command(self, part, scratch):
        cases = [f"set:{PEERS}/sets/{case}.txt" if case in SETS else str(case) for case in part]
        return self.launch + self.program + cases

    def read(self, output, scratch):
        """Rows of {"case", "mode", "median_us", "min_us"} out of what was printed."""
        rows = []
        for line in output.splitlines():
            start = line.find('{"case"')  # a launcher may write before it whose line it is
            if start >= 0:
                row = json.loads(line[start:])
                row["case"] = Path(row["case"]).stem if ":" in row["case"] else row["case"]
                rows.append(row)
        return rows

    def variables(self, scratch):
        """The environment in which it runs, besides one thread a rank."""
        return dict(self.environment)


class Gloo(Contestant):
    """Its ranks meet in a folder, or a file, that nobody has used before."""

    def command(self, part, scratch):
        os.mkdir(f"{scratch}/folder")
        return [f"{scratch}/folder" if word == "$FOLDER" else word
                for word in super().command(part, scratch)]

    def variables(self, scratch):
        return {"DTRAIN_BENCH_STORE": f"{scratch}/file"}


class Dtrain(Contestant):
    """dtrain-bench, beside MPI's own call and the plain copy, alternating operation by operation.
    The sizes of a part are a geometric progression."""

    def command(self, part, scratch):
        if part == ["small"]:
            what = ["-b", "1K", "-e", "1K", "--tensors", "1000"]
        elif part[0] in SETS:
            what = ["--model", part[0]]
        else:
            factor = part[1] // part[0] if len(part) > 1 else 2
            what = ["-b", str(part[0]), "-e", str(part[-1]), "-f", str(factor)]
        rivals = ["--vs", "mpi", "--vs", "memcpy"]
        return self.launch + self.program + rivals + what + ["--json", f"{scratch}/json"]

    def read(self, output, scratch):
        rows = []
        for found in json.loads(Path(scratch, "json").read_text(encoding="utf-8")):
            if found["errors"]:
                raise ValueError(f"{found['errors']} wrong elements")
            rows.extend(self.rows_of(found))
        return rows

    @staticmethod
    def rows_of(found):
        case = found["model"] or ("small" if found["tensors"] > 1 else str(found["bytes"]))
        if case in SETS:
            counts = SETS[case][1]
            if (found["tensors"], found["bytes"]) != (len(counts), 4 * sum(counts)):
                raise ValueError(f"dtrain-bench measures another {case}")
        mode = "each" if case in SETS else ""
        yield {"case": case, "mode": mode, "median_us": found["median_us"],
               "min_us": found["min_us"]}
        yield {"case": case, "mode": "copy", "median_us": found["vs"]["memcpy"]["median_us"]}
        yield {"case": case, "mode": "mpi", "median_us": found["vs"]["mpi"]["median_us"]}


class Idle(Contestant):
    def parts(self):
        return [["idle"]]

    def command(self, part, scratch):
        return self.launch + self.program


def openmpi(ranks, launcher="mpirun.openmpi"):
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    place = ["--bind-to", "core"] if ranks <= (os.cpu_count() or 1) else \
        ["--oversubscribe", "--bind-to", "none"]
    return [launcher, *root, "-np", str(ranks), *place]


def hydra(folder, *options):
    return [f"{PEERS}/{folder}/bin/mpiexec.hydra", "-n", "2", *options]


def ours(build, ranks, **limits):
    bench = f"{build}/bin/dtrain-bench"
    crowd = f"-x{ranks}" if ranks != 2 else ""
    for kind in ("private", "library"):
        yield Dtrain(f"dtrain-{kind}{crowd}", f"libdtrain, {kind} buffers", "", openmpi(ranks),
                     [bench, "allreduce", "--buffers", kind], ranks=ranks, **limits)


def mpis():
    def program(name):
        return [f"{PEERS}/bin/mpi_peer.{name}"]

    five = openmpi(2, f"{PEERS}/openmpi5/bin/mpirun")
    yield Contestant("openmpi4", "Open MPI 4, defaults", "openmpi4", openmpi(2),
                     program("openmpi4"))
    yield Contestant("openmpi4-tuned", "Open MPI 4, tuned", "openmpi4",
                     openmpi(2) + OPENMPI4_TUNING + CMA, program("openmpi4"))
    yield Contestant("openmpi5", "Open MPI 5, defaults", "openmpi5", five, program("openmpi5"),
                     {"OPAL_PREFIX": str(ROOT / PEERS / "openmpi5")})
    yield Contestant("openmpi5-tuned", "Open MPI 5, tuned", "openmpi5", five + OPENMPI4_TUNING,
                     program("openmpi5"), {"OPAL_PREFIX": str(ROOT / PEERS / "openmpi5")})
    yield Contestant("mpich4", "MPICH 4", "mpich4",
                     ["mpiexec.mpich", "-n", "2", "-bind-to", "core"], program("mpich4"))
    yield Contestant("mpich5", "MPICH 5", "mpich5", hydra("mpich5", "-bind-to", "core"),
                     program("mpich5"))
    yield Contestant("intelmpi", "Intel MPI", "intelmpi", hydra("intelmpi"), program("intelmpi"),
                     {"I_MPI_ROOT": str(ROOT / PEERS / "intelmpi"), "I_MPI_FABRICS": "shm",
                      "I_MPI_PIN_DOMAIN": "core"})
    crowded = {"sizes": CROWDED_SIZES, "sets": [], "ranks": 4}
    idle = ["--mca", "mpi_yield_when_idle", "1"]
    yield Contestant("openmpi4-x4", "Open MPI 4, yields", "openmpi4", openmpi(4) + idle,
                     program("openmpi4"), **crowded)
    yield Contestant("openmpi4-tuned-x4", "Open MPI 4, yields, tuned", "openmpi4",
                     openmpi(4) + idle + OPENMPI4_TUNING + CMA, program("openmpi4"), **crowded)


def frameworks():
    yield Contestant("oneccl", "oneCCL", "oneccl", hydra("oneccl"), [f"{PEERS}/bin/ccl_peer"],
                     {"I_MPI_ROOT": str(ROOT / PEERS / "oneccl"), "I_MPI_FABRICS": "shm",
                      "I_MPI_PIN_DOMAIN": "core", "CCL_ATL_TRANSPORT": "mpi",
                      "CCL_WORKER_COUNT": "1"})
    for algorithm in ("ring", "bcube", "ring_chunked", "halving_doubling"):
        # The older algorithms are prepared for one buffer each, which suits no set.
        sets = {} if algorithm in ("ring", "bcube") else {"sets": []}
        yield Gloo(f"gloo-{algorithm}", f"Gloo, {algorithm}", "gloo", openmpi(2),
                   [f"{PEERS}/bin/gloo_peer", algorithm, "$FOLDER"], **sets)
    yield Gloo("torch-gloo", "torch.distributed on Gloo", "torch", openmpi(2),
               ["/usr/bin/python3", "tests/bench/peers/torch_peer.py", "gloo"])
    horovod = [f"{PEERS}/python/bin/python", "tests/bench/peers/torch_peer.py", "horovod"]
    mpi = {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}
    yield Contestant("horovod", "Horovod on MPI", "horovod", openmpi(2), horovod, mpi)
    yield Contestant("horovod-fast", "Horovod on MPI, 0.1 ms cycle", "horovod", openmpi(2), horovod,
                     {**mpi, "HOROVOD_CYCLE_TIME": "0.1"})
    yield Contestant("horovod-gloo", "Horovod on Gloo", "horovod",
                     [f"{PEERS}/python/bin/horovodrun", "--gloo", "-np", "2"], horovod)


def idle_pairs(build):
    script = "tests/bench/peers/idle.py"
    yield Idle("idle-dtrain", "libdtrain", "", openmpi(2),
               ["/usr/bin/python3", script, "dtrain", f"{build}/lib/libdtrain.so"])
    yield Idle("idle-horovod", "Horovod", "horovod", openmpi(2),
               [f"{PEERS}/python/bin/python", script, "horovod"])


def everyone(build):
    yield from ours(build, 2)
    yield from mpis()
    yield from frameworks()
    yield from ours(build, 4, sizes=CROWDED_SIZES, sets=[])
    yield from idle_pairs(build)
