"""The request for a capacity report, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.pipeline.capacity.archive_hours import BUCKET_S
from penstock.pipeline.capacity.period import Period

PAGE_NAME = "capacity.html"


class NothingMeasured(PenstockError):
    """The period has no measurements; the detail says which source and period were read."""

    code = "nothing_measured"
    status = 404
    title = "Nothing measured"


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """What to report on. Without `archive` the report reads the tiers; without `queues`, all queues."""

    period: Period
    out: Path
    queues: tuple[str, ...] = ()
    archive: str | None = None

    @property
    def width_s(self) -> int:
        """Width of the buckets in which peaks are counted, in seconds."""
        return self.period.tier.width_s if self.archive is None else BUCKET_S


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """The result: one row per subject, most urgent first; its 168 hours of the week; its days."""

    request: ReportRequest
    subjects: pa.Table
    profile: pa.Table
    days: pa.Table

    @property
    def page(self) -> Path:
        """Path of the HTML page."""
        return self.request.out / PAGE_NAME
