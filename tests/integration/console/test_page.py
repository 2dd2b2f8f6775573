"""The dashboard in a real browser, with responses faked by the tests."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.integration.console.fake_api import ORIGIN, FakeApi, metrics_response

pytestmark = pytest.mark.browser

README = Path(__file__).parents[3] / "README.md"

DELAYED_LIGHT = [0xA0, 0x62, 0x2D]
COUNT_HATCHED_PIXELS = """
(canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const muted = [0x58, 0x66, 0x73];
  let count = 0;
  for (let i = 0; i < data.length; i += 4) {
    const isTranslucent = data[i + 3] > 10 && data[i + 3] < 120;
    if (isTranslucent && muted.every((channel, k) => Math.abs(data[i + k] - channel) < 24)) count++;
  }
  return count;
}
"""
HAS_COLOR = """
(canvas, wanted) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] > 200 && wanted.every((channel, k) => Math.abs(data[i + k] - channel) < 24)) return true;
  }
  return false;
}
"""


async def test_without_queues_the_page_shows_the_push_command_of_the_readme(page: Page) -> None:
    await page.goto(ORIGIN)

    command = await page.locator(".empty .command code").inner_text()
    assert command.startswith(f"curl -X POST {ORIGIN}/api/v1/push")
    assert command in README.read_text()


async def test_run_queues_stay_on_the_page_while_redis_is_unreachable(page: Page, api: FakeApi) -> None:
    api.queues = ["orders"]
    run_queue = {"name": "emails", "depth": 4, "delayed": 2, "running": 3, "concurrency": 3, "paused": True}
    api.run_queues = (200, {"queues": [run_queue], "total": 1})
    await page.goto(ORIGIN)
    description = page.locator("article[data-queue=emails] .about")
    await expect(description).to_have_text("run queue, 3 of 3 running, 2 delayed, paused")
    await expect(page.locator("#count")).to_have_text("2 queues")

    api.run_queues = (503, {"detail": "Redis is unreachable. Retry shortly."})
    await expect(page.locator("#notice")).to_contain_text("Redis is unreachable")
    await expect(page.locator("article h2")).to_have_text(["emails", "orders"])
    await expect(description).to_have_text("run queue, state unknown")
    await expect(page.locator("article[data-queue=emails] .depth dd")).to_have_text("–")
    api.run_queues = (200, {"queues": [], "total": 0})
    await expect(page.locator("article h2")).to_have_text(["orders"])
    await expect(page.locator("#notice")).to_be_hidden()


async def test_a_card_shows_the_numbers(page: Page, api: FakeApi) -> None:
    api.queues = ["orders"]
    await page.goto(ORIGIN)

    await expect(page.locator(".depth dd")).to_have_text("7")
    await expect(page.locator(".in dd")).to_have_text("2.0")
    await expect(page.locator(".out dd")).to_have_text("1.0")
    await expect(page.locator(".wait dd")).to_have_text("40 ms")
    await expect(page.locator(".retried dd")).to_have_text("3")
    await expect(page.locator(".dead dd")).to_have_text("0")
    await expect(page.locator(".expired dd")).to_have_text("0")


async def test_without_metrics_the_page_shows_the_api_error_and_the_depth(page: Page, api: FakeApi) -> None:
    api.queues = ["orders"]
    api.metrics = 503, {"title": "ClickHouse unreachable", "detail": "Run `penstock status`."}
    await page.goto(ORIGIN)

    await expect(page.locator("#notice")).to_have_text("Run `penstock status`.")
    await expect(page.locator("article .note")).to_be_visible()
    await expect(page.locator("article dd")).to_have_text(["7", *["–"] * 7])

    api.metrics = None
    await expect(page.locator("#notice")).to_be_hidden()
    await expect(page.locator("article .note")).to_be_hidden()


async def test_a_failed_component_is_shown_with_its_reason(page: Page, api: FakeApi) -> None:
    parts = {"redis": {"status": "down", "detail": "no response within 2 s"}}
    api.health = 503, {"status": "degraded", "parts": parts}
    await page.goto(ORIGIN)

    await expect(page.locator("#components li.down")).to_contain_text("redis")
    await expect(page.locator("#notice")).to_have_text("redis: no response within 2 s")


async def test_the_notice_about_an_unreachable_broker_disappears_when_it_is_back(
    page: Page, api: FakeApi
) -> None:
    api.queues = ["orders"]
    await page.goto(ORIGIN)
    await expect(page.locator("article")).to_have_count(1)

    api.reachable = False
    await expect(page.locator("#notice")).to_contain_text("start it with “penstock up”")
    await expect(page.locator("#notice")).to_contain_text(
        re.compile(r"numbers below are from \d\d:\d\d:\d\d")
    )
    await expect(page.locator("article")).to_have_count(1)

    api.reachable = True
    await expect(page.locator("#notice")).to_be_hidden()


async def test_only_visible_queues_are_requested(page: Page, api: FakeApi) -> None:
    api.queues = [f"queue-{n:03d}" for n in range(100)]
    await page.goto(ORIGIN)
    await expect(page.locator(".plot.drawn").first).to_be_visible()
    requested = {path for path in api.requests if path.endswith("/metrics")}
    assert 0 < len(requested) < 15

    await page.locator("article").last.scroll_into_view_if_needed()
    await expect(page.locator("article").last.locator(".plot.drawn")).to_have_count(3)
    await expect(page.locator("article").first.locator("canvas")).to_have_count(0)


async def test_a_slow_broker_gets_no_second_request_before_it_responds(page: Page, api: FakeApi) -> None:
    api.gate.clear()
    await page.clock.install()
    await page.goto(ORIGIN)
    await api.wait_for_requests("/health", more_than=0)
    await page.clock.run_for(9_000)  # several poll intervals, but less than the request timeout
    assert api.requests["/health"] == 1

    api.gate.set()
    await expect(page.locator(".empty")).to_be_visible()


async def test_a_hidden_tab_sends_no_requests(page: Page, api: FakeApi) -> None:
    await page.clock.install()
    await page.add_init_script(
        "Object.defineProperty(document, 'hidden', {get: () => window.simulateHidden === true})"
    )
    await page.goto(ORIGIN)
    await expect(page.locator(".empty")).to_be_visible()
    await set_hidden(page, hidden=True)
    before = api.requests["/health"]
    await page.clock.run_for(20_000)
    assert api.requests["/health"] == before

    await set_hidden(page, hidden=False)
    await api.wait_for_requests("/health", more_than=before)


async def set_hidden(page: Page, *, hidden: bool) -> None:
    script = """(hidden) => {
      window.simulateHidden = hidden;
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    await page.evaluate(script, hidden)


async def test_html_in_a_queue_name_is_shown_as_text(page: Page, api: FakeApi) -> None:
    name = "<img src=x onerror=alert(1)>"
    api.queues = [name]
    await page.goto(ORIGIN)

    await expect(page.locator("article h2")).to_have_text(name)
    await expect(page.locator("article h2 img")).to_have_count(0)


async def test_carried_and_observed_depth_are_separate_lines_that_meet(page: Page) -> None:
    drawn = await to_drawing(
        page, metrics_response([(2, False), (2, True), (2, True), (5, False)]), max_buckets=100
    )

    assert drawn["depth"] == [2, None, 2, 5]
    assert drawn["carried"] == [2, 2, 2, None]


async def test_delayed_tasks_have_a_line_only_if_some_exist(page: Page, api: FakeApi) -> None:
    api.queues = ["orders"]
    for delayed in (None, [0, 0, 0], [0, 6, 2]):
        api.metrics = 200, metrics_response([(2, False), (2, True), (5, False)], delayed)
        await page.goto(ORIGIN)
        depth = page.locator("figure").first
        await expect(depth.locator(".plot.drawn")).to_be_visible()
        legend = depth.locator(".legend .item", has_text="delayed")
        if any(delayed or ()):
            await expect(legend).to_have_text("delayed 2")
        else:
            await expect(legend).to_be_hidden()
        assert await depth.locator("canvas").evaluate(HAS_COLOR, DELAYED_LIGHT) is any(delayed or ())


async def test_merged_points_keep_peaks(page: Page) -> None:
    response = metrics_response([(2, False), (9, False), (2, True), (3, True)], delayed=[4, 0, 0, 1])
    drawn = await to_drawing(page, response, max_buckets=2)

    assert drawn["step"] == 10
    assert drawn["waiting"] == [9, 3]
    assert drawn["delayed"] == [4, 1]
    assert drawn["isCarried"] == [False, True]
    assert drawn["enqueued"] == [2, 2]


async def test_an_open_bucket_has_no_rate(page: Page) -> None:
    response = metrics_response([(1, False), (1, False), (1, False)])
    response["completeness"]["complete_until"] = "2026-01-01T00:00:14.000Z"
    drawn = await to_drawing(page, response, max_buckets=100)

    assert drawn["enqueued"] == [2, 2, None]


async def test_a_long_open_bucket_has_a_rate_over_its_known_part(page: Page) -> None:
    response = metrics_response([(1, False)])
    response["resolution"] = "1m"
    response["period"]["end"] = "2026-01-01T00:00:40.000Z"
    response["completeness"]["complete_until"] = "2026-01-01T00:00:40.000Z"
    drawn = await to_drawing(page, response, max_buckets=100)

    assert drawn["enqueued"] == [0.25]


async def test_buckets_that_are_not_counted_have_no_rate_and_are_hatched(page: Page) -> None:
    response = metrics_response([(1, False)] * 8)
    response["completeness"] |= {"complete_until": "2026-01-01T00:00:24.000Z", "lost": 7}
    for number in (1, 5, 6, 7):  # a loss, and points after the last counted event
        response["timeseries"][number] |= {
            "complete": False,
            "throughput": {"enqueued": 0, "dequeued": 0, "completed": 0},
        }
    response["timeseries"][4]["complete"] = False
    drawn = await to_drawing(page, response, max_buckets=100)

    assert drawn["enqueued"] == [2, None, 2, 2, None, None, None, None]
    assert drawn["isUnknown"] == [False, True, False, False, True, True, True, True]


async def test_uncounted_points_have_neither_depth_nor_wait(page: Page) -> None:
    response = metrics_response([(1, False), (1, False), *[(1, True)] * 6], delayed=[3] * 8)
    response["completeness"]["complete_until"] = "2026-01-01T00:00:10.000Z"
    drawn = await to_drawing(page, response, max_buckets=100)

    assert drawn["depth"] == [1, 1, *[None] * 6]
    assert drawn["carried"] == [None] * 8
    assert drawn["delayed"] == [3, 3, *[None] * 6]
    assert drawn["avgWait"] == [20, 20, *[None] * 6]
    assert drawn["p95Wait"] == [40, 40, *[None] * 6]


async def test_a_merged_point_with_a_loss_is_unknown(page: Page) -> None:
    response = metrics_response([(1, False)] * 4)
    response["timeseries"][1]["complete"] = False
    drawn = await to_drawing(page, response, max_buckets=2)

    assert drawn["isUnknown"] == [True, False]
    for column in ("enqueued", "waiting", "avgWait", "p95Wait"):
        assert drawn[column][0] is None
        assert drawn[column][1] is not None


async def test_without_completeness_nothing_after_the_newest_event_is_known(page: Page) -> None:
    response = metrics_response([(1, False)] * 4)
    response["completeness"]["complete_until"] = None
    response["freshness"] = "2026-01-01T00:00:11.000Z"
    for point in response["timeseries"]:
        point["complete"] = None
    drawn = await to_drawing(page, response, max_buckets=100)

    assert drawn["enqueued"] == [2, 2, None, None]


async def test_a_card_says_that_its_series_is_incomplete(page: Page, api: FakeApi) -> None:
    api.queues = ["orders"]
    response = metrics_response([(1, False)] * 8)
    api.metrics = 200, response
    await page.goto(ORIGIN)
    await expect(page.locator(".plot.drawn").first).to_be_visible()
    await expect(page.locator("article .incomplete")).to_be_hidden()
    canvas = page.locator("figure canvas").nth(1)
    pixels_without_hatching = await canvas.evaluate(COUNT_HATCHED_PIXELS)

    response["completeness"]["lost"] = 7
    response["timeseries"][2]["complete"] = False
    await page.goto(ORIGIN)
    hint = page.locator("article .incomplete")
    await expect(hint).to_be_visible()
    assert "7 metric events" in (await hint.get_attribute("title") or "")
    assert await canvas.evaluate(COUNT_HATCHED_PIXELS) > pixels_without_hatching + 300


async def test_a_notice_says_since_when_metrics_are_behind(page: Page, api: FakeApi) -> None:
    api.queues = ["orders"]
    response = metrics_response([(1, False)] * 8)
    response["period"]["end"] = "2026-01-01T00:03:30.000Z"
    response["completeness"]["complete_until"] = "2026-01-01T00:00:15.000Z"
    api.metrics = 200, response
    reason = "The last report of the pipeline is 195 s old. Check its log."
    pipeline = {"status": "down", "detail": reason}
    api.health = 200, {"status": "degraded", "parts": {"pipeline": pipeline}}
    await page.goto(ORIGIN)

    since = re.compile(rf"^Metrics are behind since .*\d\d:\d\d:15 \(3 min\)\. {re.escape(reason)}$")
    await expect(page.locator("#notice")).to_have_text(since)
    await expect(page.locator("article dd")).to_have_text(["7", *["–"] * 4, "≥8", "–", "–"])
    await expect(page.locator(".legend b >> visible=true")).to_have_text(["–"] * 6)

    response["completeness"]["complete_until"] = response["period"]["end"]
    api.health = 200, {"status": "ok", "parts": {"pipeline": {"status": "up", "detail": "running"}}}
    await expect(page.locator("#notice")).to_be_hidden()
    await expect(page.locator("article .in dd")).to_have_text("2.0")
    await expect(page.locator("article .retried dd")).to_have_text("8")


async def test_an_uncertain_total_of_zero_is_unknown(page: Page, api: FakeApi) -> None:
    api.queues = ["orders"]
    response = metrics_response([(1, False)] * 8)
    for point in response["timeseries"]:
        point["failures"]["nack"] = 0
    response["timeseries"][2]["complete"] = False
    api.metrics = 200, response
    await page.goto(ORIGIN)

    await expect(page.locator("article .in dd")).to_have_text("2.0")
    await expect(page.locator("article .retried dd")).to_have_text("–")


async def test_the_change_of_depth_is_that_of_the_shown_depth(page: Page, api: FakeApi) -> None:
    api.queues = ["orders"]  # the depth of the series rises from 2 to 5
    api.depth = 8
    await page.clock.install()
    await page.goto(ORIGIN)
    depth = page.locator("article .depth dd")
    await expect(depth).to_have_text("8")
    await expect(depth).to_have_attribute("data-change", "")

    api.depth = 0
    await page.clock.fast_forward(60_000)
    await expect(depth).to_have_text("0")
    await expect(depth).to_have_attribute("data-change", "−8 in 1 min")


async def test_depths_from_before_a_pause_are_not_compared(page: Page) -> None:
    await page.goto(ORIGIN)
    script = """async (samples) => {
      const { DepthHistory } = await import("/static/js/depth_history.js");
      const history = new DepthHistory();
      return samples.map(([depth, atMs]) => (history.add(depth, atMs), history.change()?.amount ?? null));
    }"""
    changes = await page.evaluate(
        script, [(5, 0), (9, 2_000), (6, 20_000), (7, 62_000), (1, 400_000), (3, 420_000)]
    )
    assert changes == [None, None, 1, -2, None, 2]
    assert await page.evaluate(script, [(5, 0), (None, 20_000), (6, 40_000)]) == [None, None, None]


async def to_drawing(page: Page, response: dict[str, Any], max_buckets: int) -> dict[str, Any]:
    await page.goto(ORIGIN)
    script = """async ([response, maxBuckets]) => {
      const { toColumns, toDrawing } = await import("/static/js/series.js");
      return JSON.stringify(toDrawing(toColumns(response), maxBuckets));
    }"""
    drawing: dict[str, Any] = json.loads(await page.evaluate(script, [response, max_buckets]))
    return drawing
