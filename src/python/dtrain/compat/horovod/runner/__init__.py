"""Running a function on several ranks from a program."""
from __future__ import annotations

from typing import Any, Callable, Sequence


def run(func: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None,
        np: int = 1, **unused: Any) -> list[Any]:
    """Runs func(*args, **kwargs) on np new ranks of this machine, and returns what each returned.
    Other arguments of horovod.run are about remote hosts, and refused."""
    if unused:
        raise NotImplementedError(f"horovod.run({', '.join(sorted(unused))}): use mpirun")
    import dtrain
    return dtrain.run(func, args, kwargs, np=np)
