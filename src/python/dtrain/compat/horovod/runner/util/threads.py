"""Threads."""
from __future__ import annotations

import threading
from typing import Any, Callable, Sequence


def in_thread(target: Callable[..., Any], args: Sequence[Any] = (), name: str | None = None,
              daemon: bool = True, silent: bool = False) -> threading.Thread:
    """Starts `target` in a thread of its own, and returns the thread. `silent` drops its
    exceptions."""
    def quiet(*arguments: Any) -> None:
        try:
            target(*arguments)
        except Exception:  # as asked for
            pass

    thread = threading.Thread(target=quiet if silent else target, args=tuple(args), name=name,
                              daemon=daemon)
    thread.start()
    return thread
