"""The page Alerts in a real browser, with a real broker, its metrics and a sender of notices."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import httpx
import msgspec
import pytest
from playwright.async_api import Browser, Page, expect

from penstock.alerts.delivery.address_check import AddressCheck
from penstock.alerts.delivery.channel_secrets import ChannelSecrets
from penstock.alerts.delivery.outbound import Outbound
from penstock.alerts.delivery.sender import Sender
from penstock.config import Settings
from penstock.durable.pool import Database
from penstock.ids import new_id
from penstock.warehouse.clickhouse_client import Warehouse
from tests.browser import assert_accessible
from tests.deadlines import deadline_s
from tests.integration.alerts.delivery.http_receiver import OK, http_response, receive_http
from tests.integration.api import shared_app
from tests.integration.api.calls import push
from tests.integration.api.conftest import shared_settings as shared_settings_of_api
from tests.integration.api.http.raw_connections import RunningServer
from tests.integration.api.routes.test_alert_rule_tests import insert_spikes
from tests.integration.api.routes.test_series_routes import queue, warehouse, warehouse_url
from tests.integration.console.real_console import confirm, open_console
from tests.integration.durable.alerts.alert_rows import add_environment

__all__ = ["queue", "shared_settings_of_api", "warehouse", "warehouse_url"]

pytestmark = pytest.mark.browser
server = shared_app.server
database = shared_app.database
CAUSE = {
    "kind": "no_consumers",
    "summary": "No consumer has ever read from orders.",
    "figures": {"queue": "orders", "waiting": 300},
    "excluded": [{"kind": "paused", "reason": "no queue of the incident is paused"}],
}


@pytest.fixture(scope="module")
def shared_settings(shared_settings_of_api: Settings, warehouse_url: str) -> Settings:
    return shared_settings_of_api.model_copy(
        update={"clickhouse_url": warehouse_url, "metrics_enabled": False}
    )


@pytest.fixture
async def client(server: RunningServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as http_client:
        yield http_client


@pytest.fixture
async def page(browser: Browser, server: RunningServer) -> AsyncIterator[Page]:
    async with open_console(browser, f"http://127.0.0.1:{server.port}", "/console/alerts") as page:
        yield page


@pytest.fixture
async def sender(database: Database, shared_settings: Settings) -> AsyncIterator[Sender]:
    """A sender that reaches this machine."""
    secrets = ChannelSecrets(shared_settings.encryption_keys)
    started = Sender(database, secrets, Outbound(AddressCheck("127.0.0.0/8")), poll_interval_s=0.05)
    await started.start()
    yield started
    await started.stop()


async def add_incident(database: Database, rule: dict[str, object], queue: str) -> uuid.UUID:
    """Store an open incident of a rule with one queue, as the evaluator does."""
    incident_id = new_id()
    await database.fetch(
        "INSERT INTO alert_incidents (id, environment_id, rule, severity, opened_at, cause) "
        "VALUES ($1, $2, $3, 'critical', clock_timestamp() - interval '10 minutes', $4)",
        incident_id,
        await add_environment(database),
        msgspec.json.encode(rule).decode(),
        msgspec.json.encode(CAUSE).decode(),
    )
    await database.fetch(
        "INSERT INTO alert_incident_queues (incident_id, queue, fired_at, value, threshold, summary) "
        "VALUES ($1, $2, clock_timestamp() - interval '10 minutes', 900, 100, '900 messages wait')",
        incident_id,
        queue,
    )
    return incident_id


async def test_a_rule_is_tested_over_the_past_and_saved(
    page: Page, client: httpx.AsyncClient, warehouse: Warehouse, queue: str
) -> None:
    await push(client, 1, queue=queue)
    insert_spikes(warehouse, queue, {100: 500, 92: 300, 30: 900}, 200)
    await page.get_by_role("link", name="Rules").click()
    await page.get_by_role("link", name="New rule").click()
    await page.get_by_label("Name").fill(f"backlog of {queue}")
    await page.get_by_label("Queues").fill(queue)
    await page.get_by_label("Statistic").select_option("last")
    await page.get_by_label("Threshold", exact=True).fill("100")
    await page.get_by_label("Window, in minutes").fill("1")
    await page.get_by_label("Period").select_option("6h")
    await page.get_by_label("Suggested threshold").select_option("1/day")
    await page.get_by_role("button", name="Backtest").click()
    result = page.locator(".backtest")
    await expect(result.get_by_text("would have fired 3 times")).to_be_visible()
    await expect(result.get_by_role("img")).to_be_visible()
    await expect(result.get_by_role("table").get_by_role("row")).to_have_count(4)
    await assert_accessible(page)
    await result.get_by_role("button", name="Use").click()
    await expect(page.get_by_label("Threshold", exact=True)).not_to_have_value("100")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("row", name=f"backlog of {queue}")).to_contain_text("last >")
    [rule] = [
        rule for rule in (await client.get("/api/v1/alert-rules")).json()["rules"] if rule["queue"] == queue
    ]
    assert (rule["type"], rule["statistic"], rule["windowMinutes"]) == ("BACKLOG", "last", 1)
    await page.get_by_role("button", name=f"Delete backlog of {queue}").click()
    await confirm(page, "Delete")
    await expect(page.get_by_role("row", name=f"backlog of {queue}")).to_have_count(0)


async def test_a_wrong_field_of_a_rule_is_marked(page: Page) -> None:
    await page.get_by_role("link", name="Rules").click()
    await page.get_by_role("link", name="New rule").click()
    await page.get_by_label("Name").fill("slow")
    await page.get_by_label("Type").select_option("LATENCY")
    await page.get_by_label("Threshold", exact=True).fill("soon")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("alert")).to_contain_text("milliseconds or a time such as 30s")
    await expect(page.get_by_label("Threshold", exact=True)).to_have_attribute("aria-invalid", "true")


async def test_an_incident_is_acknowledged_annotated_and_silenced(
    page: Page, client: httpx.AsyncClient, database: Database, warehouse: Warehouse, queue: str
) -> None:
    insert_spikes(warehouse, queue, {10: 900}, 200)
    rule = {"name": f"rule of {queue}", "type": "BACKLOG", "queue": queue, "threshold": 100.0}
    incident_id = await add_incident(database, {**rule, "statistic": "last", "windowMinutes": 1}, queue)
    await page.reload()
    row = page.get_by_role("row", name=str(rule["name"]))
    await expect(row).to_contain_text("No consumer has ever read from orders.")
    await row.get_by_role("link").click()
    await page.wait_for_url(f"**incident={incident_id}")
    await expect(page.get_by_role("img", name="Values of the rule")).to_be_visible()
    await expect(page.locator(".cause-figures")).to_contain_text("300")
    await page.get_by_role("button", name="Acknowledge").click()
    await expect(page.get_by_text("local acknowledged it.")).to_be_visible()
    await expect(page.get_by_role("button", name="Acknowledge")).to_have_count(0)
    await page.get_by_label("Note").fill("The provider is down.")
    await page.get_by_role("button", name="Add note").click()
    await expect(page.locator(".timeline")).to_contain_text("The provider is down.")
    await assert_accessible(page)
    await page.get_by_role("button", name="Silence").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_label("Queues")).to_have_value(queue)
    await dialog.get_by_label("Comment").fill("provider")
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog).to_have_count(0)
    silences = (await client.get("/api/v1/alert-silences")).json()["silences"]
    [silence] = [silence for silence in silences if silence["queue"] == queue]
    assert (silence["state"], silence["comment"], silence["createdBy"]) == ("active", "provider", "local")


async def test_a_recurring_silence_is_created_changed_and_deleted(page: Page, queue: str) -> None:
    await page.get_by_role("link", name="Silences").click()
    await page.get_by_role("button", name="New silence").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Queues").fill(queue)
    await dialog.get_by_label("Lasts").select_option("")
    await dialog.get_by_label("Only at some times of the week").check()
    await dialog.get_by_label("sat").check()
    await dialog.get_by_label("Time zone").fill("Europe/Nowhere")
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("'Europe/Nowhere' does not exist")
    await dialog.get_by_label("Time zone").fill("Europe/Berlin")
    await assert_accessible(page)
    await dialog.get_by_role("button", name="Save").click()
    row = page.get_by_role("row", name=queue)
    await expect(row).to_contain_text("mon, tue, wed, thu, fri, sat 22:00–06:00 (Europe/Berlin)")
    await row.get_by_role("button", name="Edit").click()
    await dialog.get_by_label("Comment").fill("nights")
    await dialog.get_by_role("button", name="Save").click()
    await expect(row).to_contain_text("nights")
    await row.get_by_role("button", name="Delete").click()
    await confirm(page, "Delete")
    await expect(row).to_have_count(0)


async def test_a_channel_is_created_tested_and_its_failed_notice_sent_again(
    page: Page, sender: Sender
) -> None:
    async with receive_http([http_response(410), OK]) as receiver:
        await page.get_by_role("link", name="Channels").click()
        await page.get_by_role("button", name="New channel").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Name").fill("hook")
        await dialog.get_by_label("URL").fill(receiver.url)
        await dialog.get_by_role("button", name="Save").click()
        row = page.get_by_role("row", name="hook")
        await expect(row).to_contain_text("webhook")
        await row.get_by_role("button", name="Send test").click()
        await expect(page.get_by_text("The test notice did not arrive.")).to_be_visible()
        await page.get_by_role("link", name="Deliveries").click()
        notice = page.get_by_role("row", name="hook")
        await expect(notice).to_contain_text("failed")
        await assert_accessible(page)
        await notice.get_by_role("button", name="Retry").click()
        await expect(notice).to_contain_text("sent", timeout=deadline_s(15) * 1000)
        assert len(receiver.requests) == 2
