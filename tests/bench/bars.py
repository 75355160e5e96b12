"""The goals for speed, and whether results meet them."""

from dataclasses import dataclass

from cases import size_title

KIB, MIB = 1 << 10, 1 << 20
SET_NAMES = {"resnet50": "ResNet-50", "bert-base": "BERT-base"}


@dataclass
class Bar:
    what: str
    unit: str  # "times", "us" or "%"
    bound: float
    at_least: bool
    found: float  # or None where something was not measured
    horovod: float  # ours over Horovod's, or None
    runs: list  # (contestant, case) that it rests on

    def verdict(self):
        if self.found is None:
            return "not measured"
        met = self.found >= self.bound if self.at_least else self.found <= self.bound
        return "met" if met else "**not met**"


def over(a, b):
    return a / b if a is not None and b else None


def evaluate(results):
    """All bars; `results.time(contestant, case, mode)` is in µs, or None, `ratio`
    one between what alternates within a run."""
    ours = results.time

    def horovod(name, case, mode=""):
        return over(ours(name, case, mode), results.time("horovod", case, mode))

    def against_copy(kind, case, mode, what, bound):
        name = f"dtrain-{kind}"
        found = results.ratio(name, case, mode, "copy")
        return Bar(f"{what}, {kind} buffers, over the plain copy", "times", bound, False, found,
                   horovod(name, case, mode), [(name, case)])

    def faster(kind, size, peer, title, bound):
        name, case = f"dtrain-{kind}", str(size)
        if peer == "openmpi4":
            found = over(1, results.ratio(name, case, "", "mpi"))
        else:
            found = over(results.time(peer, case, ""), ours(name, case, ""))
        return Bar(f"{size_title(size)}, {kind} buffers, times as fast as {title}", "times", bound,
                   True, found, horovod(name, case), [(name, case), (peer, case)])

    for size in (64 * MIB, 256 * MIB):
        yield against_copy("library", str(size), "", size_title(size), 1.15)
        yield faster("library", size, "openmpi4", "Open MPI 4, defaults", 4.5)
        yield faster("library", size, "openmpi4-tuned", "Open MPI 4, tuned", 2.2)
    for size in (MIB, 16 * MIB):
        yield faster("library", size, "openmpi4", "Open MPI 4, defaults", 4)
    yield against_copy("private", str(64 * MIB), "", size_title(64 * MIB), 2.1)
    yield faster("private", 64 * MIB, "openmpi4", "Open MPI 4, defaults", 2.5)
    yield Bar("4 B, named and blocking", "us", 5, False, ours("dtrain-private", "4", ""),
              horovod("dtrain-private", "4"), [("dtrain-private", "4")])
    for case, title in SET_NAMES.items():
        yield against_copy("private", case, "each", title, 2.3)
        yield against_copy("library", case, "each", title, 1.35)
    yield Bar("1,000 named tensors of 1 KiB, private buffers", "us", 600, False,
              ours("dtrain-private", "small", "each"), horovod("dtrain-private", "small", "each"),
              [("dtrain-private", "small")])
    for size in (4, MIB, 64 * MIB):
        theirs = [results.time(name, str(size), "")
                  for name in ("openmpi4-x4", "openmpi4-tuned-x4")]
        best = min((time for time in theirs if time is not None), default=None)
        yield Bar(f"{size_title(size)}, 4 ranks on 2 cores, private buffers, over Open MPI's best",
                  "times", 1, False, over(ours("dtrain-private-x4", str(size), ""), best), None,
                  [("dtrain-private-x4", str(size)), ("openmpi4-x4", str(size)),
                   ("openmpi4-tuned-x4", str(size))])
    idle = results.time("idle-dtrain", "idle", "")
    yield Bar("idle, of a core a rank", "%", 0.2, False, idle,
              over(idle, results.time("idle-horovod", "idle", "")), [])
