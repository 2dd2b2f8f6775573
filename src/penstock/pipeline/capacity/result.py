"""What is asked of the report, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.pipeline.capacity.archive_hours import BUCKET_S
from penstock.pipeline.capacity.period import Period

PAGE = "capacity.html"


class NothingMeasured(PenstockError):
    """There is nothing to report on; the detail says where was looked."""

    code = "nothing_measured"
    status = 404
    title = "Nothing was measured"


@dataclass(frozen=True, slots=True)
class Request:
    """What to report on. Without an `archive` the tiers are read; without `queues`, all of them."""

    period: Period
    out: Path
    queues: tuple[str, ...] = ()
    archive: str | None = None

    @property
    def width_s(self) -> int:
        return self.period.tier.width_s if self.archive is None else BUCKET_S


@dataclass(frozen=True, slots=True)
class Report:
    """The result: a row per subject, most urgent first; its 168 hours of the week; its days."""

    request: Request
    subjects: pa.Table
    profile: pa.Table
    days: pa.Table

    @property
    def page(self) -> Path:
        return self.request.out / PAGE
