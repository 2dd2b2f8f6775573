"""The pages of dead letters and of one error group in a real browser over a real broker."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import pytest
from playwright.async_api import Page, Route, expect

from tests.browser import assert_accessible
from tests.integration.api.calls import ack, get, pop
from tests.integration.api.routes.test_dead_letter_routes import dead_letter_messages
from tests.integration.api.routes.test_dead_task_routes import create_dead_tasks
from tests.integration.console import console_broker
from tests.integration.console.console_broker import ConsoleBroker

pytestmark = pytest.mark.browser
shared_settings = console_broker.shared_settings
console = console_broker.console
page = console_broker.page


async def create_group(console: ConsoleBroker, letters: int = 3, error: str = "timeout after 5 ms") -> str:
    """Create dead letters with one error in a new queue; return the queue."""
    queue = f"orders-{uuid4().hex[:8]}"
    await dead_letter_messages(console.client, *range(letters), queue=queue, error=error)
    return queue


async def find_group(console: ConsoleBroker, queue: str) -> dict[str, Any]:
    [group] = (await get(console.client, "/dlq/groups", queue=queue))["groups"]
    return dict(group)


async def open_group(console: ConsoleBroker, page: Page, queue: str) -> dict[str, Any]:
    group = await find_group(console, queue)
    await page.goto(f"{console.url}/console/dead-letters/{group['errorGroup']}?queue={queue}")
    await expect(page.get_by_role("heading", level=1, name=group["error"])).to_be_visible()
    return group


async def test_errors_are_listed_and_filtered_by_queue_and_state(console: ConsoleBroker, page: Page) -> None:
    queue = await create_group(console)
    await page.goto(f"{console.url}/console/dead-letters")
    await page.get_by_role("searchbox", name="Queue").fill(queue)
    row = page.get_by_role("row", name=re.compile(queue))
    await expect(row).to_contain_text("timeout after <n> ms")
    await expect(row.locator(".badge")).to_have_text("new")
    await expect(page).to_have_url(re.compile(f"queue={queue}"))
    await assert_accessible(page)

    await page.get_by_role("button", name="resolved", exact=True).click()
    await expect(page.get_by_text("No error matches")).to_be_visible()
    await expect(page).to_have_url(re.compile("state=resolved"))
    await page.get_by_role("button", name="new", exact=True).click()
    await expect(row).to_be_visible()
    await row.get_by_role("link", name="timeout after <n> ms").click()
    await expect(page.get_by_role("heading", level=1, name="timeout after <n> ms")).to_be_visible()


async def test_an_operator_ignores_assigns_and_resolves_an_error(console: ConsoleBroker, page: Page) -> None:
    queue = await create_group(console)
    await open_group(console, page, queue)
    await page.get_by_role("button", name="Ignore until…").click()
    await page.get_by_role("spinbutton", name="More dead letters").fill("2")
    await page.get_by_role("button", name="Ignore", exact=True).click()
    await expect(page.locator(".group-state")).to_contain_text("until 2 more dead letters")
    await page.get_by_role("button", name="Owner and note…").click()
    await page.get_by_role("textbox", name="Owner").fill("ada")
    await page.get_by_role("textbox", name="Note").fill("waits for the provider")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".group-note")).to_have_text("waits for the provider")
    await expect(page.locator(".stat", has_text="Owner")).to_contain_text("ada")
    await dead_letter_messages(console.client, 4, 5, queue=queue, error="timeout after 6 ms")
    await expect(page.locator(".group-state .badge")).to_have_text("back again")
    await assert_accessible(page)
    await page.get_by_role("button", name="Resolve").click()
    await expect(page.locator(".group-state .badge")).to_have_text("resolved")
    assert (await find_group(console, queue))["owner"] == "ada"


async def test_a_dead_letter_shows_its_error_and_payload_and_is_requeued(
    console: ConsoleBroker, page: Page
) -> None:
    queue = await create_group(console, letters=2, error="Traceback\n  boom")
    await open_group(console, page, queue)
    [letter, _] = (await get(console.client, "/dlq", queue=queue))["messages"]
    await page.get_by_role("button", name=letter["letterId"], exact=True).click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("region", name="Error")).to_contain_text("boom")
    await expect(dialog.get_by_role("region", name="Payload")).to_have_text("1")
    await expect(page).to_have_url(re.compile(f"letter={letter['letterId']}"))
    await assert_accessible(page)
    await dialog.get_by_role("button", name="Requeue").click()
    await expect(dialog).to_be_hidden()
    assert len(await pop(console.client, queue, consumerGroup="g", batch=10)) == 1


async def test_a_sample_is_requeued_before_the_rest(console: ConsoleBroker, page: Page) -> None:
    queue = await create_group(console, letters=12)
    await open_group(console, page, queue)
    await page.get_by_role("button", name="Requeue…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("12 dead letters match.")
    await expect(dialog.get_by_role("checkbox")).to_be_checked()
    await dialog.get_by_role("button", name="Requeue sample, then the rest").click()
    await expect(dialog).to_contain_text("waits for the sample: 0 of 10 finished")
    await assert_accessible(page)
    for message in await pop(console.client, queue, consumerGroup="g", batch=100):
        await ack(console.client, message, consumerGroup="g")
    await expect(dialog).to_contain_text("12 of 12 requeued")
    await expect(dialog.locator(".badge")).to_have_text("done")
    await page.get_by_role("button", name="Close", exact=True).click()
    await page.goto(f"{console.url}/console/dead-letters?tab=jobs")
    await expect(page.locator(".jobs li").first).to_contain_text("Requeue dead letters")


async def test_waiting_tasks_are_counted_and_then_moved_to_the_dead_letters(
    console: ConsoleBroker, page: Page
) -> None:
    queue = f"mail-{uuid4().hex[:8]}"
    await create_dead_tasks(console.client, queue, 1, error="mailbox 7 is full")
    tasks = {"tasks": [{"payload": {"to": "ada"}}, {"payload": {"to": "bob"}}]}
    assert (await console.client.post(f"/api/v1/run-queues/{queue}/tasks", json=tasks)).is_success
    await page.goto(f"{console.url}/console/queues/{queue}")
    await page.get_by_role("link", name="Change all that match…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("textbox", name="Queue")).to_have_value(queue)
    await dialog.get_by_role("textbox", name="Text in the payload").fill("bob")
    await dialog.get_by_role("button", name="Count what matches").click()
    await expect(dialog).to_contain_text("1 tasks match.")
    await assert_accessible(page)
    await dialog.get_by_role("button", name="Move them to the dead letters").click()
    await expect(dialog).to_contain_text("1 of 1 dead-lettered")
    await page.goto(f"{console.url}/console/dead-letters?queue={queue}")
    await expect(page.get_by_role("row", name=re.compile("mailbox <n> is full"))).to_be_visible()
    await expect(page.get_by_role("row", name=re.compile("declared dead by a job"))).to_be_visible()


async def test_viewers_see_no_buttons(console: ConsoleBroker, page: Page) -> None:
    queue = await create_group(console)

    async def as_viewer(route: Route) -> None:
        session = await (await route.fetch()).json()
        await route.fulfill(json={**session, "scopes": ["read"]})

    await page.route("**/api/v1/session", as_viewer)
    await open_group(console, page, queue)
    await expect(page.get_by_role("table")).to_be_visible()
    for name in ("Requeue…", "Resolve", "Ignore until…", "Owner and note…", "Delete all…"):
        await expect(page.get_by_role("button", name=name)).to_have_count(0)
    await page.goto(f"{console.url}/console/dead-letters?tab=jobs&subject=messages")
    await expect(page.get_by_role("heading", name="Dead letters")).to_be_visible()
    await expect(page.get_by_text("Change messages or tasks…")).to_have_count(0)
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await page.unroute("**/api/v1/session")


async def test_pages_fit_a_phone(console: ConsoleBroker, page: Page) -> None:
    queue = await create_group(console)
    await page.set_viewport_size({"width": 390, "height": 844})
    for path in (f"?queue={queue}", "?tab=jobs", f"/{(await find_group(console, queue))['errorGroup']}"):
        await page.goto(f"{console.url}/console/dead-letters{path}")
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390, path
    await page.set_viewport_size({"width": 1440, "height": 900})
