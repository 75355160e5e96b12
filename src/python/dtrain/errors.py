"""Exceptions: one class for each status of the library, with what the failed operation was."""
from __future__ import annotations

import enum
import re

from dtrain import _abi
from dtrain._library import lib

Status = enum.IntEnum("Status", {name[len("ERR_"):] if name.startswith("ERR_") else name: value
                                 for name, value in vars(_abi).items()
                                 if name in ("OK", "IN_PROGRESS") or name.startswith("ERR_")})
Status.__doc__ = "What a call or an operation came to, as dtrain_status_t."
Status.__str__ = enum.Enum.__str__  # its name, where Python 3.11 would print the number


class Error(RuntimeError):
    """A call or an operation failed.

    status: Status, why.
    tensor: name of the operation, or None when the error is not one operation's.
    ranks:  the ranks of the world that the text names, in ascending order; may be empty.
    """

    def __init__(self, text: str, status: int = _abi.ERR_INTERNAL, tensor: str | None = None):
        super().__init__(text)
        self.status = Status(status) if status in Status._value2member_map_ else status
        self.tensor = tensor
        self.ranks = ranks_in(text)


class InvalidArgument(Error, ValueError):
    """An argument, here or on the rank that is named."""


class NotInitialized(Error):
    """Before dtrain.init() or after dtrain.shutdown()."""


class AlreadyInitialized(Error):
    """dtrain.init() a second time; the world is unharmed."""


class DuplicateName(Error, ValueError):
    """The name is in flight already on this rank."""


class Mismatch(Error, ValueError):
    """Ranks called the same name with other arguments."""


class Timeout(Error, TimeoutError):
    """The operation's deadline passed."""


class WorldLost(Error):
    """The world is gone: every later call fails with the same status."""


class RankLost(WorldLost):
    """A rank died or left."""


class Aborted(WorldLost):
    """A rank called dtrain.abort()."""


class ShutDown(Error):
    """A rank that is needed has called dtrain.shutdown()."""


class Unsupported(Error, NotImplementedError):
    """Valid, but not in this build or for this type."""


class ConfigError(Error, ValueError):
    """A setting; the text names the variable."""


class Forked(Error):
    """Called in a child made by fork after dtrain.init(); start it with "spawn" instead."""


_CLASSES = {
    _abi.ERR_INVALID_ARGUMENT: InvalidArgument, _abi.ERR_NOT_INITIALIZED: NotInitialized,
    _abi.ERR_ALREADY_INITIALIZED: AlreadyInitialized, _abi.ERR_DUPLICATE_NAME: DuplicateName,
    _abi.ERR_MISMATCH: Mismatch, _abi.ERR_TIMEOUT: Timeout, _abi.ERR_RANK_LOST: RankLost,
    _abi.ERR_ABORTED: Aborted, _abi.ERR_SHUT_DOWN: ShutDown, _abi.ERR_UNSUPPORTED: Unsupported,
    _abi.ERR_CONFIG: ConfigError, _abi.ERR_FORKED: Forked,
}


def ranks_in(text: str) -> tuple[int, ...]:
    """The ranks that a text of the library names: "rank 3", "ranks 1-2, 5"."""
    ranks: set[int] = set()
    for numbers in re.findall(r"\branks? (\d+(?:-\d+)?(?:(?:, | and )\d+(?:-\d+)?)*)", text):
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", numbers):
            ranks.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(ranks))


def make(status: int, tensor: str | None = None, text: str | None = None) -> Error:
    """The exception for a status; `text` None: this thread's last error."""
    if text is None:
        text = lib.dtrain_last_error().decode("utf-8", "replace")
    if not text:
        text = lib.dtrain_status_string(status).decode()
    return _CLASSES.get(status, Error)(text, status, tensor)


def check(status: int, tensor: str | None = None) -> None:
    """Raises when a status is an error."""
    if status < 0:
        raise make(status, tensor)
