"""`make bench-console`: measure the first page of the console and the frames of 100 queues with charts.

A blank page of the same height scrolls in the same rounds: it shows how many frames this machine can draw.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from statistics import quantiles

import httpx
from playwright.async_api import Browser, Page
from playwright.async_api import TimeoutError as PlaywrightTimeoutError
from rich.console import Console
from rich.progress import Progress
from tests.browser import launch_browser, new_page
from tests.deadlines import deadline_s
from tests.waiting import wait_until_async

from bench import harness, series
from bench.harness import Entry, Results
from bench.servers import Servers, run_servers
from penstock.embedded.servers.clickhouse import ClickHouse
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.supervision.component import running
from penstock.warehouse.clickhouse_client import connect
from penstock.warehouse.schema_migrations import migrate

GOAL_BYTES = 150_000
GOAL_INTERACTIVE_MS = 1_000
GOAL_FRAMES_PER_S = 60
BUCKETS = {"5s": 720, "1m": 720, "1h": 48}
LOAD_TIMEOUT_S = 120
"""High enough for a machine that runs other tests at the same time."""
SCROLL_SPEED = 1_200
"""Pixels per second: a card passes in a sixth of a second."""

INTERACTIVE_MS = "performance.getEntriesByName('interactive')[0]?.startTime"
TRANSFERRED_BYTES = """["navigation", "resource"].flatMap((type) => performance.getEntriesByType(type))
  .reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0)"""
SCROLL = """([speed, seconds]) => new Promise((resolve) => {
  const times = [];
  const step = (now) => {
    times.push(now);
    scrollTo(0, (now - times[0]) / 1000 * speed);
    if (now - times[0] < seconds * 1000) requestAnimationFrame(step);
    else resolve(times);
  };
  requestAnimationFrame(step);
})"""
UNITS = {
    "rate": "frames per second while scrolling; pages per second until they can be used",
    "bytes": "compressed bytes of the first page with everything that it loads",
    "interactive_ms": "milliseconds from the request of the page until it can be used",
    "frame_p95_ms": "milliseconds between two frames, 95th percentile",
    "ratios bytes_vs_goal": f"bytes of the first page ÷ {GOAL_BYTES:,}",
    "ratios interactive_vs_goal": f"milliseconds until the first page can be used ÷ {GOAL_INTERACTIVE_MS:,}",
    "ratios frames_vs_goal": f"frames per second of the charts ÷ {GOAL_FRAMES_PER_S}",
    "ratios charts_vs_blank": "frames per second of the charts ÷ those of the blank page, in the same round",
}


@asynccontextmanager
async def running_console(servers: Servers, queues: int, progress: Progress) -> AsyncIterator[str]:
    """Run a broker with metrics of the last hour for all queues. Yield its URL."""
    clickhouse = ClickHouse(servers.home, any_free_port())
    with running(clickhouse):
        migrate(clickhouse.url)
        warehouse = connect(clickhouse.url)
        series.load(warehouse, queues, int(time.time()), progress, BUCKETS)
        warehouse.close()
        broker = await servers.start_broker("console", clickhouse_url=clickhouse.url, metrics_enabled=False)
        url = f"http://127.0.0.1:{broker.port}"
        items = [{"queue": f"queue-{number}", "payload": number} for number in range(queues)]
        async with httpx.AsyncClient() as client:
            (await client.post(f"{url}/api/v1/push", json={"items": items})).raise_for_status()
        yield url


async def load_first_page(browser: Browser, url: str) -> tuple[float, dict[str, float]]:
    """Open the overview with an empty cache."""
    async with new_page(browser) as page:
        await page.goto(url)
        interactive_ms = await wait_until_async(
            lambda: page.evaluate(INTERACTIVE_MS), LOAD_TIMEOUT_S, "the page can be used"
        )
        await page.get_by_role("heading", level=1).wait_for(timeout=deadline_s(LOAD_TIMEOUT_S) * 1_000)
        size = float(await page.evaluate(TRANSFERRED_BYTES))
    return 1_000 / interactive_ms, {"interactive_ms": interactive_ms, "bytes": size}


async def scroll(page: Page, seconds: float) -> tuple[float, dict[str, float]]:
    times = await page.evaluate(SCROLL, [SCROLL_SPEED, seconds])
    gaps = [later - earlier for earlier, later in pairwise(times)]
    rate = len(gaps) * 1_000 / (times[-1] - times[0])
    return rate, {"frame_p95_ms": quantiles(gaps, n=20)[-1]}


async def scroll_charts(
    browser: Browser, url: str, queues: int, seconds: float
) -> tuple[float, dict[str, float]]:
    async with new_page(browser) as page:
        await page.goto(f"{url}/console/queues?view=charts&period=30m")
        timeout_ms = deadline_s(LOAD_TIMEOUT_S) * 1_000
        try:
            await page.locator("article").nth(queues - 1).wait_for(state="attached", timeout=timeout_ms)
            await page.locator("article .plot.drawn").nth(2).wait_for(timeout=timeout_ms)
        except PlaywrightTimeoutError as error:
            error.add_note(f"The page shows: {await page.inner_text('body')}")
            raise
        return await scroll(page, seconds)


async def scroll_blank_page(browser: Browser, seconds: float) -> tuple[float, dict[str, float]]:
    async with new_page(browser) as page:
        await page.set_content(f"<div style='height: {int(SCROLL_SPEED * seconds) + 900}px'></div>")
        return await scroll(page, seconds)


Measure = Callable[[], Awaitable[tuple[float, dict[str, float]]]]


def entry(scenario: str, contestant: str, measure: Measure) -> Entry:
    return Entry(scenario, contestant, lambda _: measure())


async def run(options: argparse.Namespace, console: Console) -> Results:
    results = Results()
    results.extra["queues"] = options.queues
    with run_servers() as servers, harness.progress_bar(console) as progress:
        async with (
            running_console(servers, options.queues, progress) as url,
            launch_browser() as browser,
        ):
            entries = [
                entry("first page", "console", lambda: load_first_page(browser, url)),
                entry(
                    "scroll", "charts", lambda: scroll_charts(browser, url, options.queues, options.seconds)
                ),
                entry("scroll", "blank page", lambda: scroll_blank_page(browser, options.seconds)),
            ]
            await harness.interleave(entries, options.rounds, results, progress)
    return results


def ratios(results: Results) -> dict[str, float]:
    frames = results.rate("scroll", "charts") or 0.0
    return {
        "bytes_vs_goal": (results.count("first page", "console", "bytes") or 0.0) / GOAL_BYTES,
        "interactive_vs_goal": (results.count("first page", "console", "interactive_ms") or 0.0)
        / GOAL_INTERACTIVE_MS,
        "frames_vs_goal": frames / GOAL_FRAMES_PER_S,
        "charts_vs_blank": results.ratio("scroll", "charts", "blank page") or 0.0,
    }


def print_results(results: Results, console: Console) -> None:
    first = [
        [name, f"{results.count('first page', 'console', name) or 0:,.0f}"]
        for name in ("bytes", "interactive_ms")
    ]
    console.print(harness.build_table("first page", ["", ""], first))
    rows = [
        [
            contestant,
            f"{results.rate('scroll', contestant) or 0:.1f}",
            f"{results.count('scroll', contestant, 'frame_p95_ms') or 0:.1f}",
        ]
        for contestant in ("charts", "blank page")
    ]
    console.print(harness.build_table("scrolling", ["", "frames/s", "p95 between frames, ms"], rows))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke run: one round, few queues")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--queues", type=int, default=100, help="queues with three charts each")
    parser.add_argument("--seconds", type=float, default=8.0, help="how long each round scrolls")
    harness.add_results_option(parser)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.queues, options.seconds = 1, 10, 1.0
    return options


def main() -> None:
    options = parse_arguments()
    console = harness.open_console()
    environment = harness.describe_environment(("chdb", "playwright"))
    started = time.perf_counter()
    results = asyncio.run(run(options, console))
    values = ratios(results)
    path = harness.write_json(options.results, "console", results, values, UNITS, environment)
    harness.plot_bars(
        path.with_suffix(".png"),
        f"Scrolling {options.queues} queues with three charts each",
        {
            "frames per second": {
                name: results.rate("scroll", name) or 0.0 for name in ("charts", "blank page")
            },
            "95th percentile between two frames, ms": {
                name: results.count("scroll", name, "frame_p95_ms") or 0.0
                for name in ("charts", "blank page")
            },
        },
        "",
        "charts",
        columns=2,
    )
    print_results(results, console)
    harness.print_ratios(console, values)
    console.print(f"{path.name} and its plot are in {options.results}; {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
