"""The events that an emitter dropped since its last report: how many of each metric, and of which time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.definitions import LOST_SINCE_WIRE, LOST_WIRE, TIME_WIRE, MetricDefinition
from penstock.streams.emit_batch import PendingEvent


@dataclass(slots=True)
class _MetricLoss:
    definition: MetricDefinition
    events: int
    since_ms: int
    until_ms: int


class EmitterLosses:
    """Collects losses until `take_reports` turns them into entries for the streams."""

    def __init__(self) -> None:
        self._losses: dict[str, _MetricLoss] = {}

    def add(self, event: PendingEvent, count: int = 1) -> None:
        """Record that `count` events of the metric, with times as that of this event, will not be written."""
        definition, fields, _, at_ms, _ = event
        time_ms = fields.get(TIME_WIRE)
        if not isinstance(time_ms, int):
            time_ms = at_ms
        self._add(_MetricLoss(definition, count, time_ms, time_ms))

    def add_refused(self, events: Iterable[PendingEvent], counts: Mapping[str, int]) -> None:
        """Record how many of these events were refused, by metric. Any of them may be the refused ones."""
        for event in events:
            if event[0].name in counts:
                self.add(event, 0)
        for name, count in counts.items():
            self._losses[name].events += count

    def take_reports(self) -> list[PendingEvent]:
        """Return one event per metric that lost events, and forget the losses."""
        losses, self._losses = self._losses, {}
        return [
            (
                loss.definition,
                {LOST_WIRE: loss.events, LOST_SINCE_WIRE: loss.since_ms, TIME_WIRE: loss.until_ms},
                None,
                loss.until_ms,
                (),
            )
            for loss in losses.values()
        ]

    def restore(self, reports: list[PendingEvent]) -> None:
        """Record again what these reports say, because they were not written."""
        for definition, fields, *_ in reports:
            since_ms, until_ms = int(fields[LOST_SINCE_WIRE]), int(fields[TIME_WIRE])
            self._add(_MetricLoss(definition, int(fields[LOST_WIRE]), since_ms, until_ms))

    def _add(self, loss: _MetricLoss) -> None:
        known = self._losses.setdefault(loss.definition.name, loss)
        if known is not loss:
            known.events += loss.events
            known.since_ms = min(known.since_ms, loss.since_ms)
            known.until_ms = max(known.until_ms, loss.until_ms)
