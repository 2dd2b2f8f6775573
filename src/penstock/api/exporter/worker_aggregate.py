"""Combine what all broker processes behind one port measured, so that any of them can answer for all.

Every process writes its samples to its worker slot once a second, and always before it answers a scrape. The
process that answers next therefore knows at least as much, so a counter never decreases from one scrape to
the next. The counters of a killed process stay in its slot, and the process that takes over the slot
continues from them; the gauges of a killed process are dropped. A single process writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable

import msgspec

from penstock import telemetry
from penstock.api.exporter.process_samples import Samples, SampleTable
from penstock.background import BackgroundTask
from penstock.broker.self_metrics.worker_slot import WorkerSlot
from penstock.telemetry import EXPORTED_METRICS, ExportedMetric, MetricType, WorkerAggregation

logger = logging.getLogger(__name__)

INTERVAL_S = 1.0
MAX_GAUGE_AGE_S = 10.0
"""A process whose snapshot is older is gone or stuck, so its gauges are dropped."""

_METRICS_BY_NAME = {metric.name: metric for metric in EXPORTED_METRICS}


class WorkerSnapshot(msgspec.Struct):
    """The samples that a process writes to its slot."""

    pid: int
    written_at: float = msgspec.field(name="at")
    """Seconds since the epoch."""
    samples: dict[str, list[tuple[list[str], float]]]
    status: msgspec.Raw = msgspec.Raw()
    """The description of the process as JSON; empty if another version wrote the snapshot."""

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs and has written recently."""
        if abs(time.time() - self.written_at) > MAX_GAUGE_AGE_S:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # the process runs under another user
        return True

    def table(self) -> SampleTable:
        """The samples of the metrics that this version knows."""
        return {
            _METRICS_BY_NAME[name]: {tuple(labels): value for labels, value in values}
            for name, values in self.samples.items()
            if name in _METRICS_BY_NAME
        }


_snapshot_decoder = msgspec.json.Decoder(WorkerSnapshot)


class WorkerAggregate(BackgroundTask):
    """The samples and the state of all processes behind the port."""

    task_name = "worker snapshots"

    def __init__(
        self,
        slot: WorkerSlot,
        process_samples: Callable[[], SampleTable],
        describe_process: Callable[[], dict[str, object]],
        *,
        is_single_process: bool,
    ) -> None:
        self._slot = slot
        self._process_samples = process_samples
        self._describe_process = describe_process
        self._is_single_process = is_single_process
        inherited = None
        if not is_single_process and slot.inherited is not None:
            inherited = _decode_snapshot(slot.inherited)
        self._inherited_counters: SampleTable = _without_gauges(inherited.table()) if inherited else {}

    @property
    def is_first_process(self) -> bool:
        """Whether this is the process of slot 0. There is one at a time behind a port."""
        return self._slot.number == 0

    async def start(self) -> None:
        if not self._is_single_process:
            self._write_snapshot(self._own_samples())
            await super().start()

    async def stop(self) -> None:
        if self.is_started:
            await super().stop()
            self._write_snapshot(self._own_samples())

    def samples(self) -> SampleTable:
        """The combined samples of all processes."""
        own_samples = self._own_samples()
        workers = 1
        combined: SampleTable = {}
        _add_worker(combined, own_samples, self._slot.number)
        if not self._is_single_process:
            self._write_snapshot(own_samples)
            for slot_number, content in self._slot.read_other_snapshots():
                snapshot = _decode_snapshot(content)
                if snapshot is not None:
                    is_alive = snapshot.is_alive
                    workers += is_alive
                    table = snapshot.table()
                    _add_worker(combined, table if is_alive else _without_gauges(table), slot_number)
        combined[telemetry.WORKERS] = {(): workers}
        return combined

    def describe_processes(self) -> list[object]:
        """Return the JSON of every process that runs, by slot number; those of others are a second old."""
        processes: dict[int, object] = {self._slot.number: self._describe_process()}
        if not self._is_single_process:
            for slot_number, content in self._slot.read_other_snapshots():
                snapshot = _decode_snapshot(content)
                if snapshot is not None and snapshot.is_alive and bytes(snapshot.status):
                    processes[slot_number] = snapshot.status
        return [process for _, process in sorted(processes.items())]

    def _own_samples(self) -> SampleTable:
        """The samples of this process, its counters on top of those of earlier processes in its slot."""
        table = self._process_samples()
        for metric, values in self._inherited_counters.items():
            own_values = table.setdefault(metric, {})
            for labels, value in values.items():
                own_values[labels] = own_values.get(labels, 0) + value
        return table

    def _write_snapshot(self, table: SampleTable) -> None:
        samples = {
            metric.name: [(list(labels), float(value)) for labels, value in values.items()]
            for metric, values in table.items()
        }
        try:
            status = msgspec.Raw(msgspec.json.encode(self._describe_process()))
            snapshot = WorkerSnapshot(os.getpid(), time.time(), samples, status)
            self._slot.write_snapshot(msgspec.json.encode(snapshot))
        except OSError as error:
            logger.warning(
                "other workers do not see the metrics of this one: cannot write its slot: %s", error
            )

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                self._write_snapshot(self._own_samples())
            except Exception:
                # The next second tries again; no request depends on the snapshot.
                logger.exception("cannot write the snapshot of this worker")


def _add_worker(combined: SampleTable, table: SampleTable, slot_number: int) -> None:
    for metric, values in table.items():
        combined_values = combined.setdefault(metric, {})
        if metric.aggregation is WorkerAggregation.WORKER:
            combined_values.update({(*labels, str(slot_number)): value for labels, value in values.items()})
            continue
        for labels, value in values.items():
            previous = combined_values.get(labels)
            if previous is None:
                combined_values[labels] = value
            elif metric.aggregation is WorkerAggregation.MAX:
                combined_values[labels] = max(previous, value)
            else:
                combined_values[labels] = previous + value


def _without_gauges(table: SampleTable) -> SampleTable:
    return {metric: values for metric, values in table.items() if metric.type is not MetricType.GAUGE}


def _decode_snapshot(content: bytes) -> WorkerSnapshot | None:
    try:
        return _snapshot_decoder.decode(content)
    except msgspec.DecodeError as error:
        logger.warning("ignoring a worker slot that this version cannot read: %s", error)
        return None


def summary_values(samples: Samples, metric: ExportedMetric) -> dict[tuple[str, ...], dict[str, float]]:
    """The `sum` and `count` of a summary by labels."""
    assert metric.type is MetricType.SUMMARY
    values: dict[tuple[str, ...], dict[str, float]] = {}
    for (*labels, component), value in samples.items():
        values.setdefault(tuple(labels), {"sum": 0.0, "count": 0})[component] = value
    return values
