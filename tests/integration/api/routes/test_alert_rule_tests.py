"""POST /api/v1/alert-rules/test: a rule over stored metrics, suggestions and replays."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest

from penstock.durable.pool import Database
from penstock.warehouse.clickhouse_client import Warehouse
from tests.integration.api import shared_app
from tests.integration.api.calls import assert_problem, push
from tests.integration.api.routes.test_series_routes import (
    app,
    queue,
    shared_settings,
    warehouse,
    warehouse_url,
)
from tests.integration.durable.alerts.alert_rows import add_incident
from tests.integration.warehouse.landing_rows import insert_rows, landing_row

__all__ = ["app", "queue", "shared_settings", "warehouse", "warehouse_url"]

database = shared_app.database

PATH = "/api/v1/alert-rules/test"
HOUR_S = 3600


def backlog(queue: str, threshold: float = 100, **fields: Any) -> dict[str, Any]:
    return {
        "name": "backlog",
        "type": "BACKLOG",
        "queue": queue,
        "threshold": threshold,
        "windowMinutes": 1,
        "statistic": "last",
        **fields,
    }


def minute_ago(minutes: int) -> float:
    """The middle of a minute in the past."""
    return time.time() // 60 * 60 - minutes * 60 + 30


def insert_spikes(warehouse: Warehouse, queue: str, spikes: dict[int, int], since_minutes: int) -> None:
    """Write a depth of 1, and spikes of 3 minutes with another depth that begin some minutes ago."""
    depths = {since_minutes: 1}
    for begin, depth in spikes.items():
        depths |= {begin: depth, begin - 3: 1}
    insert_rows(
        warehouse, *(landing_row(minute_ago(ago), queue=queue, depth=depth) for ago, depth in depths.items())
    )


async def run_test(client: httpx.AsyncClient, rule: dict[str, Any], **fields: Any) -> dict[str, Any]:
    response = await client.post(PATH, json={"rule": rule, **fields})
    assert response.status_code == 200, response.text
    document: dict[str, Any] = response.json()
    return document


@pytest.mark.parametrize(("period", "since_minutes"), [("3h", 200), ("5d", 4 * 24 * 60)])
async def test_a_rule_is_tested_over_both_tiers(
    client: httpx.AsyncClient, warehouse: Warehouse, queue: str, period: str, since_minutes: int
) -> None:
    await push(client, 1, queue=queue)
    insert_spikes(warehouse, queue, {100: 500, 92: 300, 30: 900}, since_minutes)

    tested = await run_test(client, backlog(queue), period=period)

    assert [incident["peak"] for incident in tested["incidents"]] == [500, 300, 900]
    assert [incident["heldBackBy"] for incident in tested["incidents"]] == [None, "cooldown", None]
    assert (tested["fired"], tested["notified"], tested["heldBack"]["cooldown"]) == (3, 2, 1)
    assert tested["sentence"].startswith("would have fired 3 times in ")
    assert tested["sentence"].endswith("; notified 2, 1 held back by cooldown")
    assert tested["incidents"][0]["queues"] == [{"name": queue, "peak": 500, "peakText": "500"}]
    assert max(value for value in tested["series"]["values"] if value is not None) == 900


async def test_a_suggested_threshold_pages_at_most_that_often(
    client: httpx.AsyncClient, warehouse: Warehouse, queue: str
) -> None:
    await push(client, 1, queue=queue)
    insert_spikes(warehouse, queue, {100: 500, 60: 300, 30: 900}, 200)

    tested = await run_test(client, backlog(queue), period="2h", atMost="12/day")

    suggestion = tested["suggestion"]
    assert suggestion["maxNotified"] == 1
    assert (suggestion["test"]["threshold"], suggestion["test"]["notified"]) == (500, 1)
    assert suggestion["sentence"].startswith("a threshold of 500 would have fired once in 2 h")


async def test_a_replay_says_how_much_earlier_the_changed_rule_fires(
    client: httpx.AsyncClient, warehouse: Warehouse, database: Database, queue: str
) -> None:
    await push(client, 1, queue=queue)
    insert_rows(
        warehouse,
        *(
            landing_row(minute_ago(ago), queue=queue, depth=depth)
            for ago, depth in {200: 1, 64: 60, 60: 500, 50: 1}.items()
        ),
    )
    incident_id = await add_incident(database)
    now = datetime.fromtimestamp(time.time() // 60 * 60, UTC)
    await database.fetch(
        'UPDATE alert_incidents SET rule = \'{"name": "old"}\', opened_at = $2, resolved_at = $3 '
        "WHERE id = $1",
        *(incident_id, now - timedelta(minutes=59), now - timedelta(minutes=49)),
    )

    tested = await run_test(client, backlog(queue, threshold=50), incidentId=str(incident_id))

    replay = tested["replay"]
    assert replay["sentence"] == "would have fired 4 min earlier and resolved at the same time"
    assert (replay["rule"], replay["openedEarlierSeconds"]) == ("old", 240)


async def test_a_silence_holds_notices_back(
    client: httpx.AsyncClient, warehouse: Warehouse, queue: str
) -> None:
    await push(client, 1, queue=queue)
    insert_spikes(warehouse, queue, {100: 500, 30: 900}, 200)
    now = datetime.now(UTC)
    silence = {
        "queue": queue,
        "startsAt": (now - timedelta(minutes=60)).isoformat(),
        "endsAt": (now - timedelta(minutes=5)).isoformat(),
    }
    response = await client.post("/api/v1/alert-silences", json=silence)
    assert response.status_code == 201, response.text

    tested = await run_test(client, backlog(queue), period="3h")

    assert [incident["heldBackBy"] for incident in tested["incidents"]] == [None, "silence"]
    assert tested["heldBack"]["silence"] == 1


async def test_a_silence_without_a_start_begins_when_it_is_created(
    client: httpx.AsyncClient, warehouse: Warehouse, queue: str
) -> None:
    await push(client, 1, queue=queue)
    insert_spikes(warehouse, queue, {100: 500}, 200)
    response = await client.post("/api/v1/alert-silences", json={"queue": queue})
    assert response.status_code == 201, response.text

    assert (await run_test(client, backlog(queue), period="3h"))["notified"] == 1


async def test_a_deleted_queue_does_not_fire_after_its_last_observation(
    client: httpx.AsyncClient, warehouse: Warehouse, queue: str
) -> None:
    insert_rows(warehouse, landing_row(minute_ago(60), queue=queue, depth=500))

    [incident] = (await run_test(client, backlog(queue), period="2h"))["incidents"]

    opened, resolved = (datetime.fromisoformat(incident[name]) for name in ("openedAt", "resolvedAt"))
    assert resolved - opened == timedelta(minutes=1)


async def test_the_time_without_metrics_is_unknown(
    client: httpx.AsyncClient, warehouse: Warehouse, queue: str
) -> None:
    insert_rows(warehouse, landing_row(minute_ago(5), queue=queue, depth=1))

    tested = await run_test(client, backlog(queue), period="40d")

    assert tested["unknown"][0]["reason"] == "metrics by the minute are kept for 31 days"


@pytest.mark.parametrize(
    ("rule", "advice"),
    [
        ({"type": "NEW_ERROR_GROUP"}, "Test a rule of type DEAD_LETTERS instead."),
        ({"type": "EXPIRES_SOON", "withinHours": 4}, "Test a rule of type OLDEST_AGE instead."),
        ({"type": "DEAD_LETTERS", "measure": "count"}, 'Test it with measure = "growth"'),
        ({"type": "PIPELINE_STALE"}, "how far the metrics were behind is not stored"),
        ({"type": "BACKLOG"}, "needs a threshold"),
    ],
)
async def test_a_rule_without_a_history_is_refused(
    client: httpx.AsyncClient, rule: dict[str, Any], advice: str
) -> None:
    response = await client.post(PATH, json={"rule": {"name": "tested", **rule}})
    assert advice in assert_problem(response, 422, "invalid_request")


@pytest.mark.parametrize(
    "fields",
    [
        {"period": "a week"},
        {"period": "7d", "from": "2026-01-01T00:00:00Z"},
        {"from": "2027-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"},
        {"from": "2020-01-01T00:00:00Z", "to": "2020-01-02T00:00:00Z"},
        {"from": "yesterday"},
        {"atMost": "often"},
        {"perhaps": 1},
    ],
)
async def test_a_wrong_field_is_refused(
    client: httpx.AsyncClient, queue: str, fields: dict[str, Any]
) -> None:
    response = await client.post(PATH, json={"rule": backlog(queue), **fields})
    assert_problem(response, 422, "invalid_request")


async def test_a_rule_without_a_threshold_has_no_suggestion(client: httpx.AsyncClient) -> None:
    body = {"rule": {"name": "stalled", "type": "STALLED"}, "atMost": "1/week"}
    detail = assert_problem(await client.post(PATH, json=body), 422, "invalid_request")
    assert detail.startswith("STALLED has no threshold to suggest.")


async def test_an_unknown_incident_is_refused(client: httpx.AsyncClient, queue: str) -> None:
    response = await client.post(PATH, json={"rule": backlog(queue), "incidentId": str(uuid4())})
    assert_problem(response, 404, "unknown_incident")
