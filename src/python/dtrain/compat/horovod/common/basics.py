"""Joining and leaving the world as Horovod does, and what was built in."""
from __future__ import annotations

import atexit
import os
import time
from typing import Any, Iterable

import dtrain
from dtrain import (cross_rank, cross_size, is_homogeneous, is_initialized, local_rank, local_size,
                    rank, size)
from horovod.common import process_sets as _process_sets

__all__ = ["ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built", "gloo_built",
           "gloo_enabled", "init", "is_homogeneous", "is_initialized", "local_rank", "local_size",
           "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "rank", "rocm_built",
           "shutdown", "size", "start_timeline", "stop_timeline"]

_LOG_LEVELS = {"trace": "trace", "debug": "debug", "info": "info", "warning": "warn",
               "error": "error", "fatal": "error"}


def _settings() -> dict[str, Any]:
    """Horovod's variables in the environment as settings of the library. Horovod waits without a
    deadline unless one is set, and its averages count ranks that have joined."""
    settings: dict[str, Any] = {"join_divisor": "all", "timeout_ms": "off"}
    env = os.environ.get
    if env("HOROVOD_FUSION_THRESHOLD"):
        settings["fusion_threshold"] = int(env("HOROVOD_FUSION_THRESHOLD")) or "off"
    if env("HOROVOD_LOG_LEVEL", "").lower() in _LOG_LEVELS:
        settings["log_level"] = _LOG_LEVELS[env("HOROVOD_LOG_LEVEL", "").lower()]
    if env("HOROVOD_STALL_CHECK_DISABLE") == "1":
        settings["stall_warning_ms"] = "off"
    elif env("HOROVOD_STALL_CHECK_TIME_SECONDS"):
        settings["stall_warning_ms"] = int(env("HOROVOD_STALL_CHECK_TIME_SECONDS")) * 1000
    if int(env("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS") or 0) > 0:
        settings["timeout_ms"] = int(env("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS")) * 1000
    return settings


def init(comm: Any = None,
         process_sets: str | Iterable[_process_sets.ProcessSet] | None = None) -> None:
    """Joins the world. `comm` is None or []: all ranks that the launcher started; a list of their
    numbers, which these ranks alone call it with, and mpi4py is needed; or an mpi4py communicator.
    `process_sets` are added at once ("dynamic", as None, is none)."""
    if is_initialized():
        return
    if isinstance(comm, (list, tuple)):
        comm = _communicator_of(list(comm)) if comm else None
    dtrain.init(comm, **_settings())
    wanted = [] if process_sets is None or isinstance(process_sets, str) else process_sets
    _process_sets.enter_world(wanted)
    if os.environ.get("HOROVOD_TIMELINE"):
        start_timeline(os.environ["HOROVOD_TIMELINE"])


def _communicator_of(ranks: list[int]) -> Any:
    """An mpi4py communicator of some of the ranks that were started, in this order."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ImportError("hvd.init() with a list of ranks needs mpi4py") from error
    everybody = MPI.COMM_WORLD
    if any(not 0 <= rank < everybody.size for rank in ranks) or len(set(ranks)) < len(ranks):
        raise ValueError(f"ranks {ranks} of {everybody.size}")
    if everybody.rank not in ranks:
        raise ValueError(f"rank {everybody.rank} is not one of {ranks}, and does not call hvd.init")
    return everybody.Create_group(everybody.group.Incl(ranks))


def shutdown() -> None:
    """Leaves the world."""
    _end_timeline()
    dtrain.shutdown()
    _process_sets.leave_world()


def mpi_built() -> bool:
    """Whether the library knows MPI."""
    return dtrain.built("mpi")


def mpi_enabled() -> bool:
    """Whether the library uses MPI."""
    return dtrain.built("mpi")


def mpi_threads_supported() -> bool:
    """Whether other threads may use MPI too."""
    return dtrain.built("mpi")


def nccl_built() -> int:
    """NCCL's version. 0, none, whatever the library was built with: scripts that ask scale their
    learning rate for an Adasum that is a sum within a machine, which it is not here."""
    return 0


def gloo_built() -> bool:
    """Gloo is no part of libdtrain, nor are the others below of this stand-in."""
    return False


gloo_enabled = cuda_built = ddl_built = ccl_built = rocm_built = gloo_built


_timeline: tuple[str, int] | None = None  # where it goes, and since when


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """From here on operations are to be in the timeline that stop_timeline() writes, on rank 0. The
    library always notes each rank's last 1,024 operations, and these are what the file can hold.
    There are no cycles to mark."""
    global _timeline
    if _timeline is not None:
        raise ValueError("a timeline is being taken already: hvd.stop_timeline() ends it")
    if rank() == 0:
        open(file_path, "w").close()  # says at once when it cannot be written
    _timeline = file_path, time.time_ns()
    atexit.register(_end_timeline)  # before dtrain leaves the world at exit


def _end_timeline() -> None:
    if _timeline is not None and is_initialized():
        stop_timeline()


def stop_timeline() -> None:
    """Writes the timeline of all ranks, for chrome://tracing or Perfetto, on rank 0."""
    global _timeline
    if _timeline is None:
        raise ValueError("no timeline is being taken: hvd.start_timeline() begins one")
    path, since_ns = _timeline
    _timeline = None
    if rank() == 0:
        dtrain.write_timeline(path, since_ns)
