"""Routes of incidents: list, details, acknowledgement, notes and chart."""

from __future__ import annotations

import json
from uuid import UUID, uuid4

import httpx
import pytest
import pytest_asyncio

from penstock.durable.pool import Database
from tests.integration.api.calls import assert_problem, get
from tests.integration.durable.alerts.alert_rows import add_channel, add_incident, add_notice

INCIDENTS = "/api/v1/incidents"


@pytest_asyncio.fixture
async def incident_id(database: Database) -> UUID:
    """An open incident of the rule `backlog` with two queues, of which `orders` still fires."""
    created = await add_incident(database)
    rule, cause = {"name": "backlog", "type": "BACKLOG"}, {"kind": "paused", "summary": "orders is paused."}
    await database.fetch(
        "UPDATE alert_incidents SET rule = $2, severity = 'critical', cause = $3 WHERE id = $1",
        *(created, json.dumps(rule), json.dumps(cause)),
    )
    await database.fetch(
        "INSERT INTO alert_incident_queues "
        "(incident_id, queue, fired_at, resolved_at, value, threshold, summary) "
        "VALUES ($1, 'orders', now(), NULL, 50, 10, '50 messages wait.'), "
        "($1, 'mails', now(), now(), 20, 10, '20 messages wait.')",
        created,
    )
    return created


async def test_an_incident_has_its_queues_values_cause_and_notices(
    client: httpx.AsyncClient, database: Database, incident_id: UUID
) -> None:
    await add_notice(database, incident_id, await add_channel(database))
    incident = await get(client, f"/incidents/{incident_id}")
    assert (incident["state"], incident["rule"], incident["severity"]) == ("open", "backlog", "critical")
    assert [queue["queue"] for queue in incident["queues"]] == ["orders", "mails"]
    assert (incident["queues"][0]["value"], incident["queues"][0]["threshold"]) == (50, 10)
    assert (incident["queueCount"], incident["firingCount"]) == (2, 1)
    assert incident["cause"]["summary"] == "orders is paused."
    assert [notice["transition"] for notice in incident["notices"]] == ["opened"]
    assert incident["ruleDefinition"]["type"] == "BACKLOG"


@pytest.mark.parametrize(
    ("parameters", "is_listed"),
    [
        ({"state": "open"}, True),
        ({"state": "unresolved"}, True),
        ({"state": "resolved"}, False),
        ({"queue": "mails"}, True),
        ({"queue": "missing"}, False),
        ({"rule": "backlog", "severity": "critical"}, True),
        ({"rule": "other"}, False),
        ({"severity": "info"}, False),
        ({"offset": 1}, False),
    ],
)
async def test_incidents_are_filtered_and_paged(
    client: httpx.AsyncClient, incident_id: UUID, parameters: dict[str, str | int], is_listed: bool
) -> None:
    page = await get(client, "/incidents", **parameters)
    assert [incident["id"] for incident in page["incidents"]] == ([str(incident_id)] if is_listed else [])


async def test_an_acknowledgement_is_recorded_once_and_told_to_the_channels_of_the_first_notice(
    client: httpx.AsyncClient, database: Database, incident_id: UUID
) -> None:
    await add_notice(database, incident_id, await add_channel(database))
    await add_channel(database, "not notified")
    for person in ("ada", "grace"):
        response = await client.post(f"{INCIDENTS}/{incident_id}/acknowledge", json={"by": person})
        assert response.status_code == 200, response.text
        assert (response.json()["state"], response.json()["acknowledgedBy"]) == ("acknowledged", "ada")
    transitions = [(notice["transition"], notice["channel"]) for notice in response.json()["notices"]]
    assert sorted(transitions) == [("acknowledged", "ops"), ("opened", "ops")]
    assert (await get(client, "/incidents", state="open"))["incidents"] == []
    assert len((await get(client, "/incidents", state="unresolved"))["incidents"]) == 1


async def test_a_resolved_incident_is_not_acknowledged(
    client: httpx.AsyncClient, database: Database, incident_id: UUID
) -> None:
    await database.fetch("UPDATE alert_incidents SET resolved_at = now()")
    response = await client.post(f"{INCIDENTS}/{incident_id}/acknowledge", json={"by": "ada"})
    assert "is resolved" in assert_problem(response, 409, "wrong_state")
    assert (await get(client, f"/incidents/{incident_id}"))["acknowledgedAt"] is None


async def test_notes_are_added_in_order(client: httpx.AsyncClient, incident_id: UUID) -> None:
    for text in ("looking", "found it"):
        response = await client.post(f"{INCIDENTS}/{incident_id}/notes", json={"text": text, "author": "ada"})
        assert response.status_code == 201, response.text
    notes = (await get(client, f"/incidents/{incident_id}"))["notes"]
    assert [(note["author"], note["text"]) for note in notes] == [("ada", "looking"), ("ada", "found it")]


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("acknowledge", {}),
        ("acknowledge", {"by": ""}),
        ("acknowledge", {"by": "a\u0000"}),
        ("acknowledge", {"by": "ada", "force": True}),
        ("notes", {"text": ""}),
        ("notes", {"text": "a\u0000"}),
        ("notes", {"text": "a" * 10_001}),
    ],
)
async def test_a_body_that_is_not_valid_changes_nothing(
    client: httpx.AsyncClient, incident_id: UUID, action: str, body: dict[str, object]
) -> None:
    assert_problem(
        await client.post(f"{INCIDENTS}/{incident_id}/{action}", json=body), 422, "invalid_request"
    )
    incident = await get(client, f"/incidents/{incident_id}")
    assert (incident["state"], incident["notes"]) == ("open", [])


async def test_the_chart_is_a_picture(
    client: httpx.AsyncClient, database: Database, incident_id: UUID
) -> None:
    assert_problem(await client.get(f"{INCIDENTS}/{incident_id}/chart.png"), 404, "no_incident_chart")
    await database.fetch("UPDATE alert_incidents SET chart = $1", b"\x89PNG")
    response = await client.get(f"{INCIDENTS}/{incident_id}/chart.png")
    assert (response.headers["content-type"], response.content) == ("image/png", b"\x89PNG")


async def test_an_unknown_incident_is_a_404(client: httpx.AsyncClient) -> None:
    path = f"{INCIDENTS}/{uuid4()}"
    for response in (
        await client.get(path),
        await client.get(f"{path}/chart.png"),
        await client.post(f"{path}/acknowledge", json={"by": "ada"}),
        await client.post(f"{path}/notes", json={"text": "lost"}),
    ):
        assert_problem(response, 404, "unknown_incident")
