"""Running a function on several ranks from one program, as from a notebook."""
from __future__ import annotations

import importlib.util
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from typing import Any, Callable, Sequence

from dtrain.objects import dumps


class RunError(RuntimeError):
    """A function that dtrain.run started has failed; the text is that of the rank that was first
    to fail, with its traceback. `rank` is None when no rank had anything to say."""

    def __init__(self, text: str, rank: int | None):
        super().__init__(text)
        self.rank = rank


def launcher(np: int) -> list[str]:
    """The command that starts `np` ranks on this machine: mpirun with its options.
    FileNotFoundError when there is none."""
    mpirun = shutil.which("mpirun") or shutil.which("mpiexec")
    if mpirun is None:
        raise FileNotFoundError("neither mpirun nor mpiexec is on PATH")
    command = [mpirun, "-n", str(np)]
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False)
    if "Open MPI" in version.stdout + version.stderr:
        # A function may well be given more ranks than there are cores.
        command += ["--oversubscribe", "--bind-to", "none"]
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
    return command


def run(function: Callable[..., Any], args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None, *, np: int = 2,
        command: Sequence[str] | None = None, timeout: float | None = None) -> list[Any]:
    """Calls function(*args, **kwargs) on `np` new ranks of this machine, each a process of its own
    in which dtrain.init() was called, and returns their results in rank order.

    function, arguments and results are pickled; functions of a notebook or of __main__ need the
    package cloudpickle. What the ranks print comes out here.

    command: starts the ranks, as ["mpirun", "-n", "4", "--hostfile", …]; None: mpirun on this
             machine. np=1 needs none.
    timeout: seconds after which all ranks are ended, and subprocess.TimeoutExpired is raised.

    RunError when the function raises on a rank, or a rank ends otherwise.
    """
    if (getattr(function, "__module__", None) == "__main__"
            and not importlib.util.find_spec("cloudpickle")):
        raise ModuleNotFoundError("dtrain.run: for a function of a notebook or of __main__ the "
                                  "package cloudpickle is needed (pip install cloudpickle)")
    with tempfile.TemporaryDirectory(prefix="dtrain-run-") as folder:
        with open(os.path.join(folder, "call"), "wb") as file:
            file.write(dumps((function, tuple(args), kwargs or {})))
        if command is None:
            command = [] if np == 1 else launcher(np)
        worker = [sys.executable, "-m", "dtrain._worker", folder]
        ended = subprocess.run([*command, *worker], env=_environment(), check=False,
                               timeout=timeout)
        return _results(folder, np, ended.returncode)


def _environment() -> dict[str, str]:
    """This one, less what a launcher has told this process, and with our own module path."""
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith(("OMPI_COMM_", "OMPI_UNIVERSE_", "PMIX_", "PMI_", "PRTE_",
                                          "HYDRA_", "HYDI_", "OMPI_MCA_orte_", "OMPI_MCA_ess_"))}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return environment


def _results(folder: str, np: int, status: int) -> list[Any]:
    results, failures = [], []
    for rank in range(np):
        path = os.path.join(folder, f"result.{rank}")
        if not os.path.exists(path):
            continue
        with open(path, "rb") as file:
            when, failed, value = pickle.load(file)
        if failed:
            failures.append((when, rank, value))
        else:
            results.append(pickle.loads(value))
    if failures:
        _, rank, text = min(failures)
        raise RunError(f"rank {rank} of {np} failed:\n{text}", rank)
    if len(results) != np:
        raise RunError(f"{np - len(results)} of {np} ranks ended without a result; the launcher's "
                       f"exit status is {status}", None)
    return results
