"""The history of a run: every call with its answer, and every fault, as JSON lines.

A call has one `invoke` line and at most one line with its outcome: `ok` (the answer says that it took
effect), `fail` (the answer says that it did not) or `unknown` (no answer, or one that leaves it open). A call
without an outcome counts as unknown. Times are seconds since the start of the run, of one monotonic clock.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO

Outcome = Literal["ok", "fail", "unknown"]


@dataclass(slots=True)
class Call:
    """A call of a client and its outcome."""

    id: int
    client: str
    op: str
    args: dict[str, Any]
    invoked_at: float
    completed_at: float = math.inf
    """Infinite for an unknown outcome: the call may take effect at any later time."""
    outcome: Outcome = "unknown"
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"

    @property
    def possible(self) -> bool:
        """Whether it may have taken effect."""
        return self.outcome != "fail"


@dataclass(frozen=True, slots=True)
class FaultSpan:
    """A fault and the time until the platform was healthy again."""

    kind: str
    began_at: float
    ended_at: float


@dataclass(slots=True)
class History:
    """A whole history, as the checker reads it."""

    calls: list[Call] = field(default_factory=list)
    faults: list[FaultSpan] = field(default_factory=list)

    def select(self, *ops: str) -> Iterator[Call]:
        return (call for call in self.calls if call.op in ops)


class HistoryWriter:
    """Append calls and faults to a history file. Every line is flushed, so a crash of the run keeps them."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("w", encoding="utf-8")
        self._started_at = time.monotonic()
        self._next_id = 0
        self.outcomes: dict[str, int] = {"ok": 0, "fail": 0, "unknown": 0}

    def now(self) -> float:
        """Return the seconds since the start of the run."""
        return time.monotonic() - self._started_at

    def invoke(self, client: str, op: str, args: dict[str, Any]) -> int:
        self._next_id += 1
        self._write(event="invoke", call=self._next_id, client=client, op=op, args=args)
        return self._next_id

    def complete(self, call: int, outcome: Outcome, result: dict[str, Any]) -> None:
        self.outcomes[outcome] += 1
        self._write(event=outcome, call=call, result=result)

    def begin_fault(self, kind: str, number: int) -> None:
        self._write(event="fault", fault=number, kind=kind)

    def end_fault(self, number: int) -> None:
        self._write(event="healed", fault=number)

    def close(self) -> None:
        self._file.close()

    def _write(self, **line: Any) -> None:
        self._file.write(json.dumps({"at": round(self.now(), 6)} | line) + "\n")
        self._file.flush()


def read_history(path: Path) -> History:
    with path.open(encoding="utf-8") as file:
        return parse_history(json.loads(line) for line in file)


def parse_history(lines: Iterable[dict[str, Any]]) -> History:
    calls: dict[int, Call] = {}
    open_faults: dict[int, tuple[str, float]] = {}
    history = History()
    for line in lines:
        event, at = line["event"], float(line["at"])
        if event == "invoke":
            calls[line["call"]] = Call(line["call"], line["client"], line["op"], line["args"], at)
        elif event == "fault":
            open_faults[line["fault"]] = (line["kind"], at)
        elif event == "healed":
            kind, began_at = open_faults.pop(line["fault"])
            history.faults.append(FaultSpan(kind, began_at, at))
        else:
            call = calls[line["call"]]
            call.outcome, call.result = event, line["result"]
            if event != "unknown":
                call.completed_at = at
    history.faults += [FaultSpan(kind, at, math.inf) for kind, at in open_faults.values()]
    history.calls = list(calls.values())
    return history
