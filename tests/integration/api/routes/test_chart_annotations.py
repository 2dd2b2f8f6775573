"""The routes of annotations, and the annotations that changes of queues write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest

from penstock.durable.annotations import AnnotationFilter, AnnotationStore, NewAnnotation
from penstock.durable.pool import Database
from penstock.model import Scope
from tests.integration.api import shared_app
from tests.integration.api.calls import assert_problem, configure, get, pop, push
from tests.integration.api.routes.test_dead_letter_routes import dead_letter_messages
from tests.integration.api.routes.test_dead_task_routes import create_dead_tasks
from tests.integration.environments import create_environment

app = shared_app.app
database = shared_app.database

AT = "2026-03-01T12:00:00.000Z"
SMALL = Scope("acme", "shop", "small")


async def annotate(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    response = await client.post("/api/v1/annotations", json={"text": "v1.2.3", **fields})
    assert response.status_code == 201, response.text
    annotation: dict[str, Any] = response.json()
    return annotation


async def list_annotations(client: httpx.AsyncClient, **parameters: Any) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = (await get(client, "/annotations", **parameters))["annotations"]
    return listed


async def changes(client: httpx.AsyncClient, queue: str) -> list[tuple[str, str]]:
    """The kind and text of the annotations of one queue, the oldest first."""
    listed = await list_annotations(client, queue=queue)
    return [(entry["kind"], entry["text"]) for entry in reversed(listed) if entry["queue"] == queue]


async def test_a_deploy_is_in_the_charts_of_all_queues_in_its_time(client: httpx.AsyncClient) -> None:
    deploy = await annotate(client, kind="deploy", at=AT, link="https://ci.example.com/7")
    note = await annotate(client, queue="a", at=AT, end="2026-03-01T13:00:00Z", text="load test")
    assert deploy == {
        "id": deploy["id"],
        "kind": "deploy",
        "at": AT,
        "end": None,
        "ongoing": False,
        "queue": None,
        "text": "v1.2.3",
        "subject": "local",
        "link": "https://ci.example.com/7",
    }
    span = {"from": "2026-03-01T11:00:00Z", "to": "2026-03-01T12:30:00Z"}
    assert await list_annotations(client, queue="a", **span) == [deploy, note]
    assert await list_annotations(client, queue="b", **span) == [deploy]
    assert await list_annotations(client, kind="note", **span) == [note]
    inside_the_note = {"from": "2026-03-01T12:30:00Z", "to": "2026-03-01T12:40:00Z"}
    assert await list_annotations(client, **inside_the_note) == [note]
    page = await get(client, "/annotations", limit=1, **span)
    assert (len(page["annotations"]), page["complete"]) == (1, False)
    deleted = await client.delete(f"/api/v1/annotations/{note['id']}")
    assert deleted.json() == {"deleted": True, "id": note["id"]}
    assert await list_annotations(client, queue="a", **span) == [deploy]
    unknown = await client.delete(f"/api/v1/annotations/{note['id']}")
    assert_problem(unknown, 404, "unknown_annotation")


async def test_a_request_with_a_key_can_be_repeated(client: httpx.AsyncClient) -> None:
    deploy = await annotate(client, kind="deploy", at=AT, queue="keyed", key="build 7")
    again = await client.post("/api/v1/annotations", json={"text": "other", "key": "build 7"})
    assert (again.status_code, again.json()) == (200, deploy)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, None),
        ({"text": ""}, None),
        ({"text": "x", "kind": "pause"}, "kind"),
        ({"text": "x", "kind": "incident"}, "kind"),
        ({"text": "x", "kind": "No Kind"}, None),
        ({"text": "x", "at": "yesterday"}, "at"),
        ({"text": "x", "end": AT}, "end"),
        ({"text": "x", "at": AT, "end": "2026-03-01T11:59:00Z"}, "end"),
        ({"text": "x", "link": "javascript:alert(1)"}, None),
        ({"text": "x", "queue": ""}, "queue"),
        ({"text": "x", "unknown": 1}, None),
    ],
)
async def test_bad_annotations_are_refused(client: httpx.AsyncClient, body: Any, field: str | None) -> None:
    before = await list_annotations(client, **{"from": "2020-01-01T00:00:00Z"})
    refused = await client.post("/api/v1/annotations", json=body)
    assert_problem(refused, 422, "invalid_request")
    if field:
        assert refused.json()["field"] == field
    assert await list_annotations(client, **{"from": "2020-01-01T00:00:00Z"}) == before


async def test_a_time_that_ends_before_it_starts_is_refused(client: httpx.AsyncClient) -> None:
    refused = await client.get("/api/v1/annotations", params={"from": AT, "to": AT})
    assert_problem(refused, 422, "invalid_request")


async def test_changes_of_a_durable_queue_are_annotations(client: httpx.AsyncClient) -> None:
    queue = uuid4().hex
    for retry_limit in (5, 7, 7):
        await configure(client, queue, retryLimit=retry_limit)
    path = f"/api/v1/resources/queues/{queue}"
    for verb in ("pause", "pause", "resume"):
        assert (await client.post(f"{path}/{verb}")).status_code == 200
    await push(client, 1, 2, queue=queue)
    assert await pop(client, queue, consumerGroup="billing", subscriptionMode="all")
    seek = f"/api/v1/consumer-groups/billing/queues/{queue}/seek"
    assert (await client.post(seek, json={"toEnd": True})).status_code == 200
    assert (await client.post(f"{path}/purge")).status_code == 200
    assert await changes(client, queue) == [
        ("configure", "Queue created"),
        ("configure", "retryLimit 5 → 7"),
        ("pause", "Paused"),
        ("resume", "Resumed"),
        ("seek", "Group billing moved to the end"),
        ("purge", "Purged: 0 messages"),
    ]


async def test_changes_of_a_run_queue_are_annotations(client: httpx.AsyncClient) -> None:
    queue = uuid4().hex
    path = f"/api/v1/run-queues/{queue}"
    for limit in (5, 5, 9, None):
        assert (await client.put(f"{path}/limits", json={"concurrency": limit})).status_code == 200
    for verb in ("pause", "resume", "purge"):
        assert (await client.post(f"{path}/{verb}")).status_code == 200
    task_ids = await create_dead_tasks(client, queue, 1, 2, 3)
    redriven = await client.post(f"{path}/dead-letters/redrive", json={"ids": task_ids[:2]})
    assert redriven.json()["redriven"] == 2
    assert (await client.post(f"{path}/dead-letters/redrive", json={"all": True})).json()["redriven"] == 1
    assert await changes(client, queue) == [
        ("limit", "Limit of running tasks: none → 5"),
        ("limit", "Limit of running tasks: 5 → 9"),
        ("limit", "Limit of running tasks: 9 → none"),
        ("pause", "Paused"),
        ("resume", "Resumed"),
        ("purge", "Purged: 0 tasks"),
        ("requeue", "Requeued single dead letters"),
        ("requeue", "Requeued: 1 dead tasks"),
    ]


async def test_a_requeue_of_dead_letters_is_an_annotation(client: httpx.AsyncClient) -> None:
    queue = uuid4().hex
    await dead_letter_messages(client, 1, 2, queue=queue)
    assert (await client.post("/api/v1/dlq/requeue", json={"queue": queue})).status_code == 202
    assert ("requeue", "Requeue started: 2 dead letters") in await changes(client, queue)


async def test_a_requeue_by_ids_is_an_annotation_of_the_queues_of_these_dead_letters(
    client: httpx.AsyncClient,
) -> None:
    first, second = uuid4().hex, uuid4().hex
    letters = await dead_letter_messages(client, 1, 2, queue=first)
    letters += await dead_letter_messages(client, 3, queue=second)
    body = {"letterIds": [letter["letterId"] for letter in letters]}
    assert (await client.post("/api/v1/dlq/requeue", json=body)).status_code == 202
    assert await changes(client, first) == [("requeue", "Requeue started: 2 dead letters")]
    assert await changes(client, second) == [("requeue", "Requeue started: 1 dead letters")]
    shown_elsewhere = [entry["text"] for entry in await list_annotations(client, queue="another")]
    assert "Requeue started: 3 dead letters" not in shown_elsewhere


async def test_a_change_succeeds_although_its_annotation_cannot_be_stored(
    client: httpx.AsyncClient, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    queue = uuid4().hex
    await configure(client, queue)
    await database.fetch("ALTER TABLE annotations RENAME TO annotations_away")
    try:
        paused = await client.post(f"/api/v1/resources/queues/{queue}/pause")
    finally:
        await database.fetch("ALTER TABLE annotations_away RENAME TO annotations")
    assert (paused.status_code, paused.json()["paused"]) == (200, True)
    assert f"No annotation of the pause of queue '{queue}' was stored" in caplog.text


async def test_an_environment_keeps_a_bounded_number_of_annotations(database: Database) -> None:
    store, old = AnnotationStore(database), datetime.now(UTC) - timedelta(days=500)
    await create_environment(database, SMALL)
    for n in range(5):
        await store.add(SMALL, NewAnnotation(kind="note", text=str(n), subject="local"), max_kept=3)
    window = AnnotationFilter(queue=None, kind=None, start=old, end=datetime.now(UTC) + timedelta(days=1))
    listed = await store.list_annotations(SMALL, window, limit=10)
    assert [annotation.text for annotation in listed] == ["4", "3", "2"]
    await store.add(SMALL, NewAnnotation(kind="note", text="old", subject="local", at=old))
    assert await store.prune(datetime.now(UTC) - timedelta(days=400)) is False
    listed = await store.list_annotations(SMALL, window, limit=10)
    assert [annotation.text for annotation in listed] == ["4", "3", "2"]


async def test_incidents_are_among_the_annotations(client: httpx.AsyncClient, database: Database) -> None:
    rule = {"name": "Backlog", "type": "BACKLOG", "threshold": 5}
    rule_id = (await client.post("/api/v1/alert-rules", json=rule)).json()["id"]
    incident_id = uuid4()
    await database.fetch(
        "INSERT INTO alert_incidents (id, environment_id, rule_id, rule, severity, opened_at) "
        "SELECT $1, environment_id, id, rule, 'warning', $3::timestamptz FROM alert_rules WHERE id = $2",
        *(incident_id, rule_id, _moment("2026-04-01T12:00:00+00:00")),
    )
    await database.fetch(
        "INSERT INTO alert_incident_queues (incident_id, queue, fired_at, summary) "
        "SELECT $1, name, $2::timestamptz, 'depth 9' FROM unnest(ARRAY['sick', 'sick2']) name",
        *(incident_id, _moment("2026-04-01T12:00:00+00:00")),
    )
    span = {"from": "2026-04-01T13:00:00Z", "to": "2026-04-01T14:00:00Z"}
    [incident] = await list_annotations(client, queue="sick", **span)
    assert (incident["id"], incident["kind"], incident["text"]) == (
        *(str(incident_id), "incident"),
        "Backlog: depth 9",
    )
    assert (incident["ongoing"], incident["end"], incident["queue"]) == (True, None, "sick")
    assert await list_annotations(client, queue="healthy", **span) == []
    [incident] = await list_annotations(client, **span)
    assert (incident["text"], incident["queue"]) == ("Backlog: 2 queues", None)
    await database.fetch(
        "UPDATE alert_incidents SET resolved_at = $2 WHERE id = $1",
        *(incident_id, _moment("2026-04-01T12:30:00+00:00")),
    )
    assert await list_annotations(client, queue="sick", **span) == []


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
