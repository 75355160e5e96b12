"""What the ranks' last operations were: dumps of the flight recorder, and a timeline made of one."""
from __future__ import annotations

import json
import os
import tempfile
from typing import Any, Iterator

from dtrain import errors
from dtrain._library import lib

# What a timeline shows of an operation: from one of its times to the next.
_PHASES = (("negotiate", "submitted_ns", "agreed_ns"), ("queue", "agreed_ns", "started_ns"),
           (None, "started_ns", "finished_ns"))


def flight_dump(path: str | os.PathLike) -> None:
    """Writes the last operations of all ranks, about a thousand each, to a file that the command
    `dtrain-flight` and docs/observing.md explain. Any rank, at any time, also while operations
    hang: the others need not do anything."""
    errors.check(lib.dtrain_flight_dump(os.fsencode(path)))


def write_timeline(path: str | os.PathLike, since_ns: int = 0) -> int:
    """Writes the same as a timeline that chrome://tracing and Perfetto open: a row for each tensor
    of each rank, with its negotiation, the wait for its turn, and the operation. Those that are not
    done end now. since_ns: only operations submitted after this time, as time.time_ns() gives it.
    Returns how many operations it holds."""
    with tempfile.TemporaryDirectory(prefix="dtrain-flight-") as folder:
        dump = os.path.join(folder, "dump.jsonl")
        flight_dump(dump)
        with open(dump, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
    operations = [line for line in lines if line["type"] == "op"
                  and line["submitted_ns"] is not None and line["submitted_ns"] >= since_ns]
    events = [event for line in lines if line["type"] == "rank" for event in (_title(line),)]
    rows: dict[tuple[int, str], int] = {}
    for operation in operations:
        events.extend(_events(operation, lines[0]["time_ns"], rows))
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"displayTimeUnit": "ms", "traceEvents": events}, file)
    return len(operations)


def _title(rank: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": rank["rank"],
            "args": {"name": f"rank {rank['rank']} on {rank['host']}"}}


def _events(operation: dict[str, Any], now_ns: int,
            rows: dict[tuple[int, str], int]) -> Iterator[dict[str, Any]]:
    """Events of one operation; `rows` holds the number of each tensor's row."""
    key = (operation["rank"], operation["name"])
    place = {"pid": operation["rank"], "tid": rows.setdefault(key, len(rows))}
    if place["tid"] == len(rows) - 1:
        yield {"ph": "M", "name": "thread_name", **place, "args": {"name": operation["name"]}}
    facts = {name: operation[name] for name in ("dtype", "count", "set", "state")}
    for phase, begin, end in _PHASES:
        if operation[begin] is None:
            return
        until = operation[end] if operation[end] is not None else now_ns
        yield {"ph": "X", "name": f"{phase} {operation['kind']}" if phase else operation["kind"],
               **place, "ts": operation[begin] / 1000,
               "dur": max(until - operation[begin], 0) / 1000, "args": facts}
