"""The world: joining and leaving it, its topology, its log."""
from __future__ import annotations

import atexit
import ctypes
import os
import weakref
from typing import Any, Callable

from dtrain import _abi, _submit, errors
from dtrain._library import lib

_before_shutdown: list[weakref.WeakMethod] = []
_log_sink: Any = None  # keeps the callback that the library was given
_pid = 0  # of the process that initialised


def init(comm: Any = None, **settings: Any) -> None:
    """Joins the world: all processes that the MPI launcher started, or this one alone without a
    launcher. Every rank must call it. A second call does nothing.

    comm:     None; or the communicator whose processes are the world, as an mpi4py communicator or
              the number that its py2f() gives.
    settings: those of docs/config.md by name, as init(fusion_threshold="32MB", timeout_ms=5000);
              variables in the environment win over them.

    Blocks until all ranks are here. Leaves the world by itself when the interpreter ends.
    """
    global _pid
    if is_initialized():
        return
    config = _abi.Config()
    errors.check(lib.dtrain_config_init(config, ctypes.sizeof(config)))
    for key, value in settings.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        errors.check(lib.dtrain_config_set(config, key.encode(), text.encode()))
    if comm is None:
        status = lib.dtrain_init(config)
    else:
        status = _init_with(comm, config)
    # Another thread, or another part of the program, was first.
    if status != _abi.ERR_ALREADY_INITIALIZED:
        errors.check(status)
    if _pid == 0:
        atexit.register(_leave_at_exit)
    _pid = os.getpid()


def _init_with(comm: Any, config: _abi.Config) -> int:
    if not hasattr(lib, "dtrain_init_mpi_fint"):
        raise errors.make(_abi.ERR_UNSUPPORTED, None,
                          "a communicator was given, and libdtrain was built without MPI")
    fortran_handle = comm.py2f() if hasattr(comm, "py2f") else int(comm)
    return lib.dtrain_init_mpi_fint(fortran_handle, config)


def shutdown() -> None:
    """Leaves the world. Operations that are pending end with ShutDown, on other ranks too where
    they need this one. Waits until every rank has called it. Does nothing without a world. init()
    may be called again afterwards."""
    if not is_initialized():
        return
    for method in _before_shutdown:
        if function := method():
            function()
    _before_shutdown.clear()
    _submit.before_shutdown()
    status = lib.dtrain_shutdown()
    _submit.after_shutdown()
    errors.check(status)


def before_shutdown(method: weakref.WeakMethod) -> None:
    """Lets a method be called when the world is left, while the library's memory can still be read;
    not when its object is gone by then."""
    _before_shutdown.append(method)


def _leave_at_exit() -> None:
    if os.getpid() != _pid or not is_initialized():
        return
    try:
        shutdown()
    except errors.Error:
        pass  # a world that is gone; the library has logged why


def is_initialized() -> bool:
    """Whether this process is in a world."""
    return lib.dtrain_is_initialized() != 0


def abort(code: int = 1, why: str | None = None) -> None:
    """Tells every rank that this one cannot go on: all operations on all ranks fail with Aborted,
    which names this rank, `code` and `why`."""
    errors.check(lib.dtrain_abort(code, why.encode() if why is not None else None))


def _topology(function: Any) -> int:
    value = function()
    if value < 0:
        raise errors.make(_abi.ERR_NOT_INITIALIZED, None,
                          "libdtrain is not initialised: call dtrain.init() first")
    return value


def rank() -> int:
    """This rank's number in the world, from 0."""
    return _topology(lib.dtrain_rank)


def size() -> int:
    """How many ranks the world has."""
    return _topology(lib.dtrain_size)


def local_rank() -> int:
    """This rank's number among those of this node, from 0."""
    return _topology(lib.dtrain_local_rank)


def local_size() -> int:
    """How many ranks this node has."""
    return _topology(lib.dtrain_local_size)


def cross_rank() -> int:
    """This rank's number among the ranks with the same local rank on all nodes."""
    return _topology(lib.dtrain_cross_rank)


def cross_size() -> int:
    """How many nodes have a rank with this local rank."""
    return _topology(lib.dtrain_cross_size)


def is_homogeneous() -> bool:
    """Whether every node has the same number of ranks."""
    return _topology(lib.dtrain_is_homogeneous) != 0


def version() -> str:
    """The library's version, such as "0.1.0"."""
    return lib.dtrain_version_string().decode()


def built(feature: str) -> bool:
    """Whether the library was built with "mpi", "cuda" or "nccl"."""
    number = getattr(_abi, "FEATURE_" + feature.upper(), None)
    if number is None:
        raise ValueError(f"unknown feature {feature!r}")
    return lib.dtrain_built(number) != 0


def set_log(function: Callable[[int, str], None] | None) -> None:
    """Sends log lines to `function(level, line)` in place of stderr; None restores stderr. It is
    called from any thread, one call at a time, and must not call dtrain."""
    global _log_sink
    sink = None
    if function is not None:
        sink = _abi.LogFn(lambda level, line, user: function(level, line.decode("utf-8",
                                                                                "replace")))
    lib.dtrain_set_log_callback(sink or _abi.LogFn(), None)
    _log_sink = sink
