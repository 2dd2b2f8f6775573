"""Tests of the capacity page in a real browser: its content, and that it makes no requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from playwright.async_api import Page

from penstock.pipeline.capacity.hours import SUBJECT
from penstock.pipeline.capacity.page import write_page
from penstock.pipeline.capacity.period import DAY_S, Period
from penstock.pipeline.capacity.result import CapacityReport, ReportRequest
from penstock.pipeline.capacity.verdict import REPORT_COLUMNS, VERDICTS
from tests.browser import open_page

pytestmark = pytest.mark.browser

HOSTILE_NAME = "</script><script>document.title='taken'</script><b>&amp; %%DATA%% 'x' \"y\" \\"
END = datetime(2026, 11, 15, tzinfo=UTC)
DAYS = [END.date() - timedelta(days=back) for back in range(30, 0, -1)]


def subject(queue: str, verdict: str = "fine", **values: Any) -> dict[str, Any]:
    """Return a row of the report."""
    row: dict[str, Any] = dict.fromkeys(REPORT_COLUMNS)
    row |= dict.fromkeys(SUBJECT, "default") | {"queue": queue, "kind": "queue" if queue else "environment"}
    row |= {"verdict": verdict, "attention": VERDICTS.index(verdict) + 1, "first_seen": END}
    row |= {"enqueued": 10, "dequeued": 10, "finished": 10, "hours_at_limit": 0, "busiest_hour_running": 0.5}
    row |= {"peak_enqueued_per_s": 1.5, "peak_enqueued_at": END, "peak_dequeued_per_s": 0.5}
    row |= {"measure": "enqueued_per_s", "saturation": "no_limit", "trend_days": 30}
    return row | values


SATURATING = subject(
    "full-soon",
    "soon",
    limit=50,
    peak_running=42,
    utilisation=0.84,
    headroom=0.16,
    measure="running",
    slope=1.0,
    slope_low=0.8,
    slope_high=1.2,
    level=40.0,
    direction="rising",
    saturation="date",
    saturates_on=date(2026, 11, 24),
    earliest=date(2026, 11, 22),
    latest=date(2026, 11, 27),
)


@asynccontextmanager
async def open_report(tmp_path: Path, *rows: dict[str, Any]) -> AsyncIterator[Page]:
    """Open the page of these subjects; fails at the end if it sent a request or logged an error."""
    days = [
        {**{name: row[name] for name in SUBJECT}, "day": day, "running": 10.0 + n, "enqueued_per_s": 1.0}
        for row in rows
        for n, day in enumerate(DAYS)
    ]
    profile = [
        {
            **{name: row[name] for name in SUBJECT},
            "hour_of_week": n,
            "hours": 4,
            "mean_per_s": n / 9,
            "p95_per_s": n,
        }
        for row in rows
        for n in range(168)
    ]
    end = int(END.timestamp())
    request = ReportRequest(Period(end - 30 * DAY_S, end, end), tmp_path)
    report = CapacityReport(request, *map(pa.Table.from_pylist, (list(rows), profile, days)))
    write_page(report, report.page)
    requested_urls: list[str] = []
    errors: list[str] = []
    async with open_page() as page:
        page.on("request", lambda request: requested_urls.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text))
        await page.goto(report.page.as_uri())
        yield page
    assert requested_urls == [report.page.as_uri()]
    assert errors == []


async def listed_names(page: Page) -> list[str]:
    return await page.locator("tr.row .text").all_inner_texts()


async def test_the_most_urgent_subject_is_first_and_open(tmp_path: Path) -> None:
    async with open_report(tmp_path, SATURATING, subject("a"), subject("B"), subject("")) as page:
        assert await listed_names(page) == ["full-soon", "a", "B"]
        assert await page.locator("tr.detail").count() == 1
        assert await page.locator(".heat .cell-background").count() == 168
        shown = await page.locator(".detail .plot .limit-text").all_text_contents()
        assert shown == ["limit 50", "2026-11-24"]
        assert "between 2026-11-22 and 2026-11-27" in await page.locator(".sentence").inner_text()


async def test_rows_can_be_sorted_searched_and_filtered(tmp_path: Path) -> None:
    async with open_report(
        tmp_path, SATURATING, subject("a"), subject("B", peak_depth=9), subject("")
    ) as page:
        await page.get_by_role("button", name="Queue", exact=True).click()
        assert await listed_names(page) == ["a", "B", "full-soon"]
        await page.get_by_role("button", name="Peak depth").click()
        assert (await listed_names(page))[0] == "B", "subjects without a value come last"
        await page.get_by_role("button", name="2 fine").click()
        assert sorted(await listed_names(page)) == ["B", "a"]
        await page.get_by_label("Find a queue").fill("nowhere")
        assert await listed_names(page) == []
        await page.get_by_role("button", name="Show all").click()
        assert len(await listed_names(page)) == 3
        await page.get_by_role("button", name="Environments").click()
        assert await listed_names(page) == ["default"]


async def test_names_are_never_interpreted_as_markup(tmp_path: Path) -> None:
    async with open_report(tmp_path, subject(HOSTILE_NAME), subject("x" * 400)) as page:
        assert await listed_names(page) == [HOSTILE_NAME, "x" * 400]
        assert await page.title() == "Capacity report · Penstock"
        overflows = await page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert not overflows, "a long name wraps"


async def test_a_queue_without_trend_or_days_is_shown(tmp_path: Path) -> None:
    bare = subject("bare", "unknown", limit=5, saturation="not_enough_data", trend_days=None)
    async with open_report(tmp_path, bare) as page:
        assert "a trend needs 14" in await page.locator(".sentence").inner_text()
        assert await page.locator("tr.row td").last.inner_text() == "not enough data"
