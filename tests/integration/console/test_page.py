"""What the page does with each kind of answer. The answers are given here; the browser is real."""

from __future__ import annotations

import asyncio
import json
import mimetypes
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Page, Route, expect

from penstock.console import STATIC
from tests.browser import open_page
from tests.waiting import wait_until_async

pytestmark = pytest.mark.browser

ORIGIN = "http://127.0.0.1:7480"
README = Path(__file__).parents[3] / "README.md"
Answer = tuple[int, dict[str, Any]]
DELAYED_LIGHT = [0xA0, 0x62, 0x2D]
HAS_COLOR = """
(canvas, wanted) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] > 200 && wanted.every((part, k) => Math.abs(data[i + k] - part) < 24)) return true;
  }
  return false;
}
"""


@dataclass
class Answers:
    """What the API says, and how often it was asked.

    `reachable = False` is a broker that is not there; a closed gate, one that takes its time.
    """

    queues: list[str] = field(default_factory=list)
    run_queues: Answer = (200, {"queues": [], "total": 0})
    health: Answer = (200, {"status": "ok", "parts": {"postgres": {"status": "up", "detail": "answering"}}})
    metrics: Answer | None = None
    reachable: bool = True
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    asked: Counter[str] = field(default_factory=Counter)

    async def give(self, route: Route) -> None:
        path = urlsplit(route.request.url).path
        if path == "/" or path.startswith("/static/"):
            await give_file(route, "index.html" if path == "/" else path.removeprefix("/static/"))
            return
        self.asked[path] += 1
        await self.gate.wait()
        if not self.reachable:
            await route.abort("connectionrefused")
            return
        status, body = self.answer(path)
        await route.fulfill(status=status, json=body)

    async def wait_for_more(self, path: str, than: int) -> None:
        async def asked() -> bool:
            return self.asked[path] > than

        await wait_until_async(asked, 5, f"the page asks for {path}")

    def answer(self, path: str) -> Answer:
        if path == "/health":
            return self.health
        if path == "/api/v1/resources/queues":
            queues = [{"name": name, "partitions": 1, "depth": 7} for name in self.queues]
            return 200, {"queues": queues, "total": len(queues)}
        if path == "/api/v1/run-queues":
            return self.run_queues
        return self.metrics or (200, series([(2, False), (2, True), (5, False)]))


async def give_file(route: Route, name: str) -> None:
    kind, _ = mimetypes.guess_type(name)
    await route.fulfill(path=STATIC / name, content_type=kind)


def series(depths: list[tuple[int, bool]], delayed: list[int] | None = None) -> dict[str, Any]:
    """A metrics answer with one 5-second point per (depth, carried); ten messages came in with each. Without
    `delayed` nobody observed any."""
    points = [
        {
            "timestamp": f"2026-01-01T00:00:{5 * i:02d}.000Z",
            "throughput": {"enqueued": 10, "dequeued": 5, "completed": 5},
            "queue_depth": {"max": depth, "last": depth},
            "delayed": dict.fromkeys(("max", "last"), delayed[i] if delayed else None),
            "latency": {"avg_wait_ms": 20, "p95_wait_ms": 40, "max_age_ms": 90},
            "failures": {"nack": 1, "dlq": 0, "ttl_expired": 0},
            "carried": carried,
        }
        for i, (depth, carried) in enumerate(depths)
    ]
    end = f"2026-01-01T00:00:{5 * len(depths):02d}.000Z"
    return {
        "queue": "any",
        "period": {"start": "2026-01-01T00:00:00.000Z", "end": end},
        "resolution": "5s",
        "freshness": end,
        "timeseries": points,
    }


@pytest.fixture
async def answers() -> Answers:
    answers = Answers()
    answers.gate.set()
    return answers


@pytest.fixture
async def page(answers: Answers) -> AsyncIterator[Page]:
    async with open_page() as page:
        crashes: list[str] = []
        page.on("pageerror", lambda error: crashes.append(str(error)))
        await page.route("**/*", answers.give)
        yield page
        await page.unroute_all(behavior="ignoreErrors")
        assert crashes == []


async def test_without_queues_it_shows_the_push_of_the_readme(page: Page) -> None:
    await page.goto(ORIGIN)

    command = await page.locator(".command code").inner_text()
    assert command.startswith(f"curl -X POST {ORIGIN}/api/v1/push")
    assert command in README.read_text()


async def test_run_queues_stay_as_they_were_last_seen_while_redis_is_away(
    page: Page, answers: Answers
) -> None:
    answers.queues = ["orders"]
    state = {"name": "emails", "depth": 4, "delayed": 2, "running": 3, "concurrency": 3, "paused": True}
    answers.run_queues = (200, {"queues": [state], "total": 1})
    await page.goto(ORIGIN)
    about = page.locator("article[data-queue=emails] .about")
    await expect(about).to_have_text("run queue, 3 of 3 running, 2 delayed, paused")
    await expect(page.locator("#count")).to_have_text("2 queues")

    answers.run_queues = (503, {"detail": "Redis does not answer; retry shortly"})
    await expect(page.locator("#notice")).to_contain_text("Redis does not answer")
    await expect(page.locator("article h2")).to_have_text(["emails", "orders"])
    answers.run_queues = (200, {"queues": [], "total": 0})
    await expect(page.locator("article h2")).to_have_text(["orders"])
    await expect(page.locator("#notice")).to_be_hidden()


async def test_a_card_tells_the_numbers(page: Page, answers: Answers) -> None:
    answers.queues = ["orders"]
    await page.goto(ORIGIN)

    await expect(page.locator(".depth dd")).to_have_text("7")
    await expect(page.locator(".in dd")).to_have_text("2.0")
    await expect(page.locator(".out dd")).to_have_text("1.0")
    await expect(page.locator(".wait dd")).to_have_text("40 ms")
    await expect(page.locator(".failed dd")).to_have_text("3")


async def test_metrics_away_says_what_the_api_says_and_keeps_the_depth(page: Page, answers: Answers) -> None:
    answers.queues = ["orders"]
    answers.metrics = 503, {"title": "ClickHouse cannot be reached", "detail": "Look at `penstock status`."}
    await page.goto(ORIGIN)

    await expect(page.locator("#notice")).to_have_text("Look at `penstock status`.")
    await expect(page.locator("article .note")).to_be_visible()
    await expect(page.locator(".depth dd")).to_have_text("7")

    answers.metrics = None
    await expect(page.locator("#notice")).to_be_hidden()
    await expect(page.locator("article .note")).to_be_hidden()


async def test_a_part_that_is_down_is_named_with_its_reason(page: Page, answers: Answers) -> None:
    parts = {"redis": {"status": "down", "detail": "no answer within 2 s"}}
    answers.health = 503, {"status": "degraded", "parts": parts}
    await page.goto(ORIGIN)

    await expect(page.locator("#parts li.down")).to_contain_text("redis")
    await expect(page.locator("#notice")).to_have_text("redis: no answer within 2 s")


async def test_a_broker_that_went_away_is_said_and_forgotten_when_it_is_back(
    page: Page, answers: Answers
) -> None:
    answers.queues = ["orders"]
    await page.goto(ORIGIN)
    await expect(page.locator("article")).to_have_count(1)

    answers.reachable = False
    await expect(page.locator("#notice")).to_contain_text("start it with “penstock up”")
    await expect(page.locator("article")).to_have_count(1)

    answers.reachable = True
    await expect(page.locator("#notice")).to_be_hidden()


async def test_of_many_queues_only_the_visible_ones_are_asked_for(page: Page, answers: Answers) -> None:
    answers.queues = [f"queue-{n:03d}" for n in range(100)]
    await page.goto(ORIGIN)
    await expect(page.locator(".plot.drawn").first).to_be_visible()
    asked_for = {path for path in answers.asked if path.endswith("/metrics")}
    assert 0 < len(asked_for) < 15

    await page.locator("article").last.scroll_into_view_if_needed()
    await expect(page.locator("article").last.locator(".plot.drawn")).to_have_count(3)
    await expect(page.locator("article").first.locator("canvas")).to_have_count(0)


async def test_a_slow_broker_is_not_asked_again_before_it_has_answered(page: Page, answers: Answers) -> None:
    answers.gate.clear()
    await page.clock.install()
    await page.goto(ORIGIN)
    await answers.wait_for_more("/health", than=0)
    await page.clock.run_for(9_000)  # several polls long, and short of the page's patience
    assert answers.asked["/health"] == 1

    answers.gate.set()
    await expect(page.locator(".empty")).to_be_visible()


async def test_a_hidden_tab_asks_for_nothing(page: Page, answers: Answers) -> None:
    await page.clock.install()
    await page.add_init_script("Object.defineProperty(document, 'hidden', {get: () => window.away === true})")
    await page.goto(ORIGIN)
    await expect(page.locator(".empty")).to_be_visible()
    await turn(page, away=True)
    before = answers.asked["/health"]
    await page.clock.run_for(20_000)
    assert answers.asked["/health"] == before

    await turn(page, away=False)
    await answers.wait_for_more("/health", than=before)


async def turn(page: Page, *, away: bool) -> None:
    script = "(away) => { window.away = away; document.dispatchEvent(new Event('visibilitychange')); }"
    await page.evaluate(script, away)


async def test_a_name_is_text_whatever_it_contains(page: Page, answers: Answers) -> None:
    name = "<img src=x onerror=alert(1)>"
    answers.queues = [name]
    await page.goto(ORIGIN)

    await expect(page.locator("article h2")).to_have_text(name)
    await expect(page.locator("article h2 img")).to_have_count(0)


async def test_carried_and_observed_depth_are_drawn_apart_and_meet(page: Page) -> None:
    drawn = await drawable(page, series([(2, False), (2, True), (2, True), (5, False)]), room=100)

    assert drawn["depth"] == [2, None, 2, 5]
    assert drawn["carried"] == [2, 2, 2, None]


async def test_delayed_tasks_have_a_line_if_there_are_any(page: Page, answers: Answers) -> None:
    answers.queues = ["orders"]
    for delayed in (None, [0, 0, 0], [0, 6, 2]):
        answers.metrics = 200, series([(2, False), (2, True), (5, False)], delayed)
        await page.goto(ORIGIN)
        depth = page.locator("figure").first
        await expect(depth.locator(".plot.drawn")).to_be_visible()
        legend = depth.locator(".legend .item", has_text="delayed")
        if any(delayed or ()):
            await expect(legend).to_have_text("delayed 2")
        else:
            await expect(legend).to_be_hidden()
        assert await depth.locator("canvas").evaluate(HAS_COLOR, DELAYED_LIGHT) is any(delayed or ())


async def test_more_points_than_room_are_merged_without_hiding_peaks(page: Page) -> None:
    answer = series([(2, False), (9, False), (2, True), (3, True)], delayed=[4, 0, 0, 1])
    drawn = await drawable(page, answer, room=2)

    assert drawn["step"] == 10
    assert drawn["waiting"] == [9, 3]
    assert drawn["delayed"] == [4, 1]
    assert drawn["isCarried"] == [False, True]
    assert drawn["enqueued"] == [2, 2]


async def test_a_bucket_that_is_not_over_has_no_rate_yet(page: Page) -> None:
    answer = series([(1, False), (1, False), (1, False)])
    answer["freshness"] = "2026-01-01T00:00:14.000Z"
    drawn = await drawable(page, answer, room=100)

    assert drawn["enqueued"] == [2, 2, None]


async def test_a_long_bucket_has_a_rate_over_what_is_known_of_it(page: Page) -> None:
    answer = series([(1, False)])
    answer["resolution"] = "1m"
    answer["period"]["end"] = answer["freshness"] = "2026-01-01T00:00:40.000Z"
    drawn = await drawable(page, answer, room=100)

    assert drawn["enqueued"] == [0.25]


async def drawable(page: Page, answer: dict[str, Any], room: int) -> dict[str, Any]:
    await page.goto(ORIGIN)
    script = """async ([answer, room]) => {
      const { columns, drawable } = await import("/static/js/series.js");
      return JSON.stringify(drawable(columns(answer), room));
    }"""
    result: dict[str, Any] = json.loads(await page.evaluate(script, [answer, room]))
    return result
