"""Finds libdtrain.so, loads it and gives its functions their types."""
from __future__ import annotations

import ctypes
import ctypes.util
import os

from dtrain import _abi

_MPI_FUNCTIONS = {"dtrain_init_mpi_fint": (ctypes.c_int,
                                           [ctypes.c_int, ctypes.POINTER(_abi.Config)])}


def candidates() -> list[str]:
    """Where the library may be, best first: DTRAIN_LIBRARY alone when it is set; else beside this
    file, where a wheel has it, and then where the system looks."""
    asked = os.environ.get("DTRAIN_LIBRARY")
    if asked:
        return [asked]
    found = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "libdtrain.so")]
    found = [path for path in found if os.path.exists(path)]
    found.append(ctypes.util.find_library("dtrain") or "libdtrain.so.0")
    return found


def load(path: str) -> ctypes.CDLL:
    """The library at `path`, every function with its types. ImportError when it cannot be loaded,
    is of another version, or lacks a function."""
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"libdtrain cannot be loaded: {error} (its path can be given in "
                          "DTRAIN_LIBRARY)") from error
    try:
        version = library.dtrain_version()
    except AttributeError as error:
        raise ImportError(f"{path} is not libdtrain: it has no dtrain_version") from error
    # Before 1.0 the API may change with the minor number; later fields and functions are appended.
    if version // 100 != _abi.VERSION // 100 or version < _abi.VERSION:
        raise ImportError(f"{path} is libdtrain {_text(version)}; this package is made for "
                          f"{_text(_abi.VERSION)}")
    for name, (result, parameters) in _abi.FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError as error:
            raise ImportError(f"{path} has no {name}: it is older than this package") from error
        function.restype, function.argtypes = result, parameters
    for name, (result, parameters) in _MPI_FUNCTIONS.items():
        if hasattr(library, name):  # not in a build without MPI
            function = getattr(library, name)
            function.restype, function.argtypes = result, parameters
    return library


def _text(version: int) -> str:
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def _load_first() -> tuple[str, ctypes.CDLL]:
    for path in candidates()[:-1]:
        return path, load(path)
    return candidates()[-1], load(candidates()[-1])


path, lib = _load_first()
