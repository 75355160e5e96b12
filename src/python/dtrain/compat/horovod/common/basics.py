"""Joining and leaving the world as Horovod does, and what was built in."""
from __future__ import annotations

import os
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
    """Joins the world. `comm` is None, [] or an mpi4py communicator; `process_sets` are added at
    once ("dynamic", as None, is none)."""
    if is_initialized():
        return
    if isinstance(comm, (list, tuple)):
        if comm:
            raise NotImplementedError("hvd.init() with a list of ranks: give it a communicator of "
                                      "mpi4py, MPI.COMM_WORLD.Split(…)")
        comm = None
    dtrain.init(comm, **_settings())
    wanted = [] if process_sets is None or isinstance(process_sets, str) else process_sets
    _process_sets.enter_world(wanted)


def shutdown() -> None:
    """Leaves the world."""
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
    """NCCL's version. 0, none: whatever the library was built with, tensors here are in host
    memory."""
    return 0


def gloo_built() -> bool:
    """Gloo is no part of libdtrain, nor are the others below of this stand-in."""
    return False


gloo_enabled = cuda_built = ddl_built = ccl_built = rocm_built = gloo_built


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """The library writes no timeline yet."""
    raise NotImplementedError("libdtrain writes no timeline")


def stop_timeline() -> None:
    """The library writes no timeline yet."""
    raise NotImplementedError("libdtrain writes no timeline")
