"""Any process behind a port answers `GET /metrics` for all of them.

Every process leaves its samples in its slot once a second, and always before it answers, so whoever answers
next knows at least as much: a counter never goes back, whichever process is asked. The counters of a
process that was killed stay in its slot; the one that takes its number over goes on from them. Its gauges
are gone with it. With one process there is nobody to tell, and nothing is left anywhere.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from typing import Any

import msgspec

from penstock import telemetry
from penstock.api.exporter.process_samples import Samples, Table
from penstock.broker.self_metrics.worker_slot import WorkerSlot
from penstock.telemetry import EXPORTED_METRICS, WorkerAggregation, ExportedMetric, MetricType

logger = logging.getLogger(__name__)

EVERY_S = 1.0
FORGOTTEN_S = 10.0
"""Gauges that are older are those of a process that is gone or stuck."""

_BY_NAME = {exported.name: exported for exported in EXPORTED_METRICS}


class Left(msgspec.Struct):
    """What a process leaves in its slot."""

    pid: int
    at: float
    samples: dict[str, list[tuple[list[str], float]]]

    @property
    def is_alive(self) -> bool:
        if abs(time.time() - self.at) > FORGOTTEN_S:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # it is there, and somebody else's
        return True

    def table(self) -> Table:
        """What of it this version knows."""
        return {
            _BY_NAME[name]: {tuple(labels): value for labels, value in values}
            for name, values in self.samples.items()
            if name in _BY_NAME
        }


_decoder = msgspec.json.Decoder(Left)


class Whole:
    """The samples of all processes behind the port. `start` and `stop` may be called twice."""

    def __init__(self, slot: WorkerSlot, own: Callable[[], Table], *, alone: bool) -> None:
        self._slot = slot
        self._own = own
        self._alone = alone
        self._task: asyncio.Task[None] | None = None
        before = None if alone or slot.inherited is None else _read(slot.inherited)
        self._before: Table = _counters(before.table()) if before else {}

    async def start(self) -> None:
        if self._task is None and not self._alone:
            self._leave(self._with_before())
            self._task = asyncio.create_task(self._run(), name="samples for the others")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            self._leave(self._with_before())

    def samples(self) -> Table:
        """Everything that processes export of themselves, put together."""
        table = self._with_before()
        workers = 1
        whole: Table = {}
        _join(whole, table, self._slot.number)
        if not self._alone:
            self._leave(table)
            for number, content in self._slot.others():
                left = _read(content)
                if left is not None:
                    is_alive = left.is_alive
                    workers += is_alive
                    _join(whole, left.table() if is_alive else _counters(left.table()), number)
        whole[telemetry.WORKERS] = {(): workers}
        return whole

    def _with_before(self) -> Table:
        """What this process has counted, on top of what others with its number had."""
        table = self._own()
        for exported, values in self._before.items():
            mine = table.setdefault(exported, {})
            for labels, value in values.items():
                mine[labels] = mine.get(labels, 0) + value
        return table

    def _leave(self, table: Table) -> None:
        samples = {
            exported.name: [(list(labels), float(value)) for labels, value in values.items()]
            for exported, values in table.items()
        }
        try:
            self._slot.leave(msgspec.json.encode(Left(os.getpid(), time.time(), samples)))
        except OSError as error:
            logger.warning("brokers behind this port do not hear from this one: %s", error)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                self._leave(self._with_before())
            except Exception:
                # The next second will do; nobody's work depends on it.
                logger.exception("samples were not left for the others")


def _join(whole: Table, table: Table, number: int) -> None:
    for exported, values in table.items():
        into = whole.setdefault(exported, {})
        if exported.aggregation is WorkerAggregation.WORKER:
            into.update({(*labels, str(number)): value for labels, value in values.items()})
            continue
        for labels, value in values.items():
            known = into.get(labels)
            if known is None:
                into[labels] = value
            else:
                into[labels] = max(known, value) if exported.aggregation is WorkerAggregation.MAX else known + value


def _counters(table: Table) -> Table:
    return {exported: values for exported, values in table.items() if exported.type is not MetricType.GAUGE}


def _read(content: bytes) -> Left | None:
    try:
        return _decoder.decode(content)
    except msgspec.DecodeError as error:
        logger.warning("a slot holds what this version cannot read: %s", error)
        return None


def described(samples: Samples, exported: ExportedMetric) -> dict[tuple[str, ...], dict[str, float]]:
    """The samples of a summary by their labels, as sum and count."""
    assert exported.type is MetricType.SUMMARY
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for (*labels, part), value in samples.items():
        found.setdefault(tuple(labels), {"sum": 0.0, "count": 0})[part] = value
    return found
