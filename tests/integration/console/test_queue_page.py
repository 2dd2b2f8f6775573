"""The page of a queue in a real browser over a real broker."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest
from playwright.async_api import Locator, Page, expect

from tests.browser import assert_accessible
from tests.integration.api.calls import get, pop, push
from tests.integration.console import console_broker
from tests.integration.console.console_broker import ConsoleBroker

pytestmark = pytest.mark.browser
shared_settings = console_broker.shared_settings
console = console_broker.console
page = console_broker.page

QUESTIONS = ["Backed up?", "How long is the wait?", "At the limit?", "Stuck?"]
CHARTS = ["Depth", "Wait", "Running", "Oldest", "Rate", "Failed /min"]


async def create_durable_queue(console: ConsoleBroker, messages: int = 3) -> str:
    """Push messages to a new queue with a group that has leased the first of them."""
    queue = f"orders {uuid4().hex[:8]}"
    await push(console.client, *range(messages), queue=queue, partition="p1")
    assert await pop(console.client, queue, consumerGroup="billing", subscriptionMode="all")
    return queue


async def create_run_queue(console: ConsoleBroker, tasks: int = 3) -> str:
    queue = f"mail-{uuid4().hex[:8]}"
    body = {"tasks": [{"payload": n} for n in range(tasks)]}
    response = await console.client.post(f"/api/v1/run-queues/{queue}/tasks", json=body)
    assert response.status_code == 201, response.text
    return queue


async def open_queue(console: ConsoleBroker, page: Page, queue: str, parameters: str = "") -> None:
    await page.goto(f"{console.url}/console/queues/{queue.replace(' ', '%20')}{parameters}")
    await expect(page.get_by_role("heading", level=1, name=queue)).to_be_visible()


def chart(page: Page, title: str) -> Locator:
    return page.locator("figure.chart").filter(has=page.locator(".title", has_text=title))


async def query_of(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


@pytest.mark.parametrize("kind", ["durable", "run"])
async def test_the_four_questions_are_answered_without_scrolling(
    console: ConsoleBroker, page: Page, kind: str
) -> None:
    create = create_durable_queue if kind == "durable" else create_run_queue
    queue = await create(console)
    console.insert_metrics(queue, minutes=20, depth=3)
    await page.set_viewport_size({"width": 1440, "height": 900})
    await open_queue(console, page, queue)
    await expect(page.locator(".answer dt")).to_have_text(QUESTIONS)
    await expect(chart(page, "Depth").locator(".plot")).to_have_class(re.compile("drawn"))
    await expect(page.locator(".answer", has_text="Backed up?")).to_contain_text("waiting")
    await expect(page.locator(".answer", has_text="Backed up?").locator("b")).not_to_have_text("Unknown")
    assert await page.evaluate("scrollY") == 0
    for title in CHARTS:
        await assert_within_screen(chart(page, title), title)
    for question in QUESTIONS:
        answer = page.locator(".answer", has_text=question)
        await assert_within_screen(answer, question)
        assert await answer.locator("b").inner_text()
    await assert_accessible(page)


async def assert_within_screen(element: Locator, name: str) -> None:
    box = await element.bounding_box()
    assert box is not None, name
    assert (box["x"] >= 0, box["y"] >= 0) == (True, True), (name, box)
    assert (box["x"] + box["width"] <= 1440, box["y"] + box["height"] <= 900) == (True, True), (name, box)


async def test_dragging_zooms_into_a_finer_tier_and_the_url_holds_it(
    console: ConsoleBroker, page: Page
) -> None:
    queue = await create_durable_queue(console)
    console.insert_metrics(queue, minutes=60, depth=7)
    await open_queue(console, page, queue, "?period=24h")
    await expect(page.locator(".tier")).to_have_text("1-minute tier")
    over = chart(page, "Wait").locator(".u-over")
    box = await over.bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + box["width"] * 0.96, box["y"] + 60)
    for title in CHARTS:
        await expect(chart(page, title).locator(".cursor-time")).to_be_visible()
    await page.get_by_role("group", name="Depth").press("ArrowLeft")
    await expect(chart(page, "Rate").locator(".cursor-time")).to_be_visible()
    await page.mouse.move(box["x"] + box["width"] * 0.96, box["y"] + 60)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] * 0.99, box["y"] + 60, steps=4)
    await page.mouse.up()
    await expect(page.locator(".tier")).to_have_text("5-second tier")
    query = await query_of(page)
    start, end = (datetime.fromisoformat(query[name][0]) for name in ("from", "to"))
    assert timedelta(minutes=30) < end - start < timedelta(minutes=60)
    await expect(page.locator(".zoomed")).to_be_visible()
    zoomed_url = page.url
    await page.get_by_role("button", name="Zoom out").click()
    await expect(page).not_to_have_url(zoomed_url)
    await page.go_back()
    assert await query_of(page) == query
    await page.reload()
    await expect(page.locator(".tier")).to_have_text("5-second tier")


async def test_carried_points_have_a_line_of_their_own(console: ConsoleBroker, page: Page) -> None:
    queue = await create_durable_queue(console)
    console.insert_metrics(queue, minutes=2, depth=9)
    await open_queue(console, page, queue, "?period=5m")
    await expect(page.locator(".carried-key")).to_have_text("carried forward")


async def test_the_charts_of_one_group_can_be_selected(console: ConsoleBroker, page: Page) -> None:
    queue = await create_durable_queue(console)
    assert await pop(console.client, queue, consumerGroup="audit", subscriptionMode="all")
    console.insert_metrics(queue, minutes=5, depth=3)
    await open_queue(console, page, queue, "?period=5m")
    async with page.expect_request(re.compile(r"/metrics\?.*group=audit")):
        await page.get_by_label("Charts of").select_option("audit")
    assert (await query_of(page))["group"] == ["audit"]
    await expect(page.locator(".answer", has_text="Backed up?")).to_contain_text("waiting")


async def test_changes_and_notes_are_marked_in_every_chart(console: ConsoleBroker, page: Page) -> None:
    queue = await create_durable_queue(console)
    console.insert_metrics(queue, minutes=5, depth=3)
    await open_queue(console, page, queue, "?period=5m")
    await page.get_by_role("button", name="Pause").click()
    await expect(page.get_by_text(f"{queue} is paused.")).to_be_visible()
    await expect(page.locator(".subtitle")).to_contain_text("paused")
    await expect(page.locator(".answer", has_text="At the limit?").locator("b")).to_have_text("Paused")
    await expect(page.locator('.mark[data-kind="pause"]')).to_have_count(len(CHARTS))
    await expect(page.locator(".events li").first).to_contain_text("Paused")
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_role("button", name="Pause")).to_be_visible()

    await page.get_by_role("button", name="Add a note").click()
    await page.get_by_label("What happened").fill("<b>load test</b>")
    await page.get_by_label("Kind").select_option("deploy")
    await page.get_by_role("button", name="Mark").click()
    note = page.locator(".events li", has_text="<b>load test</b>")
    await expect(note).to_contain_text("deploy")
    mark = chart(page, "Depth").locator(".mark").last
    await expect(mark).to_have_attribute("data-text", re.compile("load test"))
    await note.get_by_role("button").click()
    await expect(note).to_have_count(0)


async def test_a_test_message_is_pushed_and_cloned(console: ConsoleBroker, page: Page) -> None:
    queue = await create_durable_queue(console)
    await open_queue(console, page, queue)
    await page.get_by_role("button", name="Push a message").click()
    await page.get_by_label("Payload (JSON)").fill("{")
    await expect(page.get_by_text("This is not JSON")).to_be_visible()
    await expect(page.get_by_role("button", name="Push", exact=True)).to_be_disabled()
    await page.get_by_label("Payload (JSON)").fill('{"name": "Ada"}')
    await page.get_by_role("textbox", name="Partition").fill("p2")
    await page.get_by_label("Transaction id").fill("t-1")
    await page.get_by_role("button", name="Push", exact=True).click()
    await expect(page.get_by_text("Pushed as t-1.")).to_be_visible()
    await page.get_by_role("button", name="Clone t-1").click()
    await expect(page.get_by_label("Payload (JSON)")).to_have_value('{\n  "name": "Ada"\n}')
    await page.get_by_label("Payload (JSON)").fill('{"name": "Bob"}')
    await page.get_by_role("button", name="Push", exact=True).click()
    await expect(page.locator(".recent tbody tr").first).to_contain_text("Bob")
    await page.locator(".recent tbody tr").first.locator(".payload-text").click()
    await expect(page.get_by_role("dialog")).to_contain_text('"name": "Bob"')
    await page.get_by_role("button", name="Close").click()
    messages = (await get(console.client, "/messages", queue=queue, partition="p2"))["messages"]
    assert [message["data"]["name"] for message in messages] == ["Bob", "Ada"]


async def test_a_durable_queue_is_configured_sought_and_purged(console: ConsoleBroker, page: Page) -> None:
    queue = await create_durable_queue(console, messages=5)
    await open_queue(console, page, queue)
    await page.get_by_role("button", name="Configure").click()
    await page.get_by_label("Retries").fill("9")
    await page.get_by_label("Index keys").fill("$.customer\n\n$.order.id")
    await assert_accessible(page)
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text(f"The options of {queue} are set.")).to_be_visible()
    options = (await get(console.client, f"/resources/queues/{queue}"))["options"]
    assert (options["retryLimit"], options["indexKeys"]) == (9, ["$.customer", "$.order.id"])

    await page.get_by_role("button", name="Seek in p1, group billing").click()
    await page.get_by_label("Move to").select_option("end")
    await page.get_by_role("button", name="Seek", exact=True).click()
    await expect(page.get_by_text("5 messages skipped")).to_be_visible()
    await expect(page.get_by_text("No group is behind in any partition.")).to_be_visible()
    await page.get_by_role("button", name="Seek group billing").click()
    await page.get_by_label("Move to").select_option("start")
    await page.get_by_role("button", name="Seek", exact=True).click()
    await expect(page.get_by_text("5 to be delivered again")).to_be_visible()

    await page.get_by_role("button", name="Purge").click()
    confirm = page.get_by_role("dialog").get_by_role("button", name="Purge")
    await expect(confirm).to_be_disabled()
    await expect(page.get_by_role("dialog")).to_contain_text("About 5 messages")
    await page.get_by_role("dialog").get_by_role("textbox").fill(queue)
    await confirm.click()
    await expect(page.get_by_text(f"5 messages of {queue} were dropped.")).to_be_visible()
    assert (await get(console.client, f"/resources/queues/{queue}"))["depth"] == 0
    await expect(page.locator(".events li")).to_contain_text([re.compile("Purged")])


async def test_a_run_queue_is_limited_filled_and_purged(console: ConsoleBroker, page: Page) -> None:
    queue = await create_run_queue(console, tasks=2)
    await open_queue(console, page, queue)
    await page.get_by_role("button", name="Limit").click()
    await page.get_by_label("Tasks that may run at once").fill("1")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".answer", has_text="At the limit?")).to_contain_text("0 of 1 running")
    await console.client.post(f"/api/v1/run-queues/{queue}/dequeue", json={"limit": 1})
    await expect(page.locator(".answer", has_text="At the limit?").locator("b")).to_have_text(
        "Yes", timeout=15_000
    )
    await page.get_by_role("button", name="Enqueue a task").click()
    await page.get_by_label("Payload (JSON)").fill("7")
    await page.get_by_label("Delay in seconds").fill("60")
    await page.get_by_role("button", name="Enqueue", exact=True).click()
    await expect(page.get_by_text("Enqueued as task")).to_be_visible()
    state = await get(console.client, f"/run-queues/{queue}")
    assert (state["depth"], state["delayed"], state["running"]) == (1, 1, 1)
    await expect(page.locator(".recent tbody tr .badge")).to_have_text(["running", "waiting", "delayed"])
    await page.locator(".recent tbody tr", has_text="delayed").get_by_role("button", name="Clone").click()
    await expect(page.get_by_label("Payload (JSON)")).to_have_value("7")
    await page.get_by_role("button", name="Cancel").click()
    await page.get_by_role("button", name="Purge").click()
    await page.get_by_role("dialog").get_by_role("textbox").fill(queue)
    await page.get_by_role("dialog").get_by_role("button", name="Purge").click()
    await expect(page.get_by_text(f"2 tasks of {queue} were dropped.")).to_be_visible()


async def test_a_viewer_sees_no_buttons_and_no_payloads(console: ConsoleBroker, page: Page) -> None:
    queue = await create_durable_queue(console)
    session = (await console.client.get("/api/v1/session")).json()

    async def answer_as_viewer(route: Any) -> None:
        await route.fulfill(json=session | {"scopes": ["read"], "platformAdministrator": False})

    await page.route("**/api/v1/session", answer_as_viewer)
    try:
        await open_queue(console, page, queue)
        await expect(page.locator(".recent tbody tr")).to_have_count(3)
        await expect(page.locator(".recent th")).to_have_text(
            ["Pushed", "Partition", "Transaction id", "State for group billing"]
        )
        await expect(page.locator(".page-actions button, td button, .events button")).to_have_count(0)
    finally:
        await page.unroute("**/api/v1/session")


async def test_without_clickhouse_the_state_is_shown(console: ConsoleBroker, page: Page) -> None:
    queue = await create_durable_queue(console)
    problem = {"title": "ClickHouse unavailable", "detail": "ClickHouse is unreachable.", "status": 503}
    await page.route("**/metrics?*", lambda route: route.fulfill(status=503, json=problem))
    try:
        await open_queue(console, page, queue)
        await expect(page.locator(".queue-charts .unavailable")).to_contain_text("ClickHouse is unreachable.")
        await expect(page.locator(".answer", has_text="Backed up?")).to_contain_text("2 waiting")
        await expect(page.locator(".groups tbody tr")).to_contain_text("billing")
    finally:
        await page.unroute("**/metrics?*")


async def test_old_links_and_unknown_queues(console: ConsoleBroker, page: Page) -> None:
    queue = await create_run_queue(console)
    await page.goto(f"{console.url}/?queue={queue}&period=5m")
    await expect(page).to_have_url(f"{console.url}/console/queues/{queue}?period=5m")
    await expect(page.get_by_role("heading", level=1, name=queue)).to_be_visible()
    await page.goto(f"{console.url}/console/queues/{queue}-x")
    await expect(page.get_by_text(f"Queue “{queue}-x” does not exist.")).to_be_visible()


async def test_the_page_fits_a_phone(console: ConsoleBroker, page: Page) -> None:
    queue = await create_durable_queue(console)
    try:
        await page.set_viewport_size({"width": 390, "height": 844})
        await open_queue(console, page, queue)
        await expect(page.locator(".recent tbody tr")).to_have_count(3)
        assert await page.evaluate("document.documentElement.scrollWidth") == 390
    finally:
        await page.set_viewport_size({"width": 1440, "height": 900})


async def test_a_queue_of_either_kind_is_requested_by_its_own_route(
    console: ConsoleBroker, page: Page
) -> None:
    refused: list[str] = []
    page.on("response", lambda response: refused.append(response.url) if response.status >= 400 else None)
    for queue in (await create_durable_queue(console), await create_run_queue(console)):
        await open_queue(console, page, queue)
        await expect(page.locator(".answer", has_text="Stuck?").locator("b")).not_to_have_text("Unknown")
    assert refused == []


@pytest.mark.parametrize("kind", ["durable", "run"])
async def test_a_queue_is_deleted_from_its_page(console: ConsoleBroker, page: Page, kind: str) -> None:
    if kind == "durable":
        queue, path = await create_durable_queue(console), "/api/v1/resources/queues"
    else:
        queue, path = await create_run_queue(console, tasks=1), "/api/v1/run-queues"
    await open_queue(console, page, queue)
    await page.get_by_role("button", name="Delete", exact=True).click()
    dialog = page.get_by_role("dialog")
    delete = dialog.get_by_role("button", name="Delete", exact=True)
    await expect(delete).to_be_disabled()
    await dialog.get_by_role("textbox").fill(queue)
    await delete.click()
    if kind == "run":
        await expect(page.locator(".toast").last).to_contain_text("task")  # it still holds one
        assert (await console.client.get(f"{path}/{queue}")).status_code == 200
        assert (await console.client.post(f"{path}/{queue}/purge")).status_code == 200
        await page.get_by_role("button", name="Delete", exact=True).click()
        await dialog.get_by_role("textbox").fill(queue)
        await delete.click()
    await expect(page.get_by_text(f"{queue} is deleted.")).to_be_visible()
    await expect(page).to_have_url(f"{console.url}/console/queues")
    assert (await console.client.get(f"{path}/{queue}")).status_code == 404
