"""Routes of silences."""

from __future__ import annotations

from uuid import uuid4

import httpx
import pytest

from tests.integration.api.calls import assert_problem, get

SILENCES = "/api/v1/alert-silences"
NIGHT = {"days": ["fri"], "from": "22:00", "to": "06:00", "timeZone": "Europe/Berlin"}


async def test_a_silence_is_created_replaced_listed_and_deleted(client: httpx.AsyncClient) -> None:
    created = await client.post(SILENCES, json={"queue": "orders*", "endsAt": "2100-01-01T01:00:00+01:00"})
    assert created.status_code == 201, created.text
    path = created.headers["location"]
    silence = created.json()
    assert (silence["state"], silence["queue"], silence["endsAt"]) == (
        *("active", "orders*"),
        "2100-01-01T00:00:00Z",
    )
    replaced = await client.put(path, json={"rule": "backlog", "recurrence": NIGHT, "comment": "release"})
    assert replaced.status_code == 200, replaced.text
    assert (replaced.json()["queue"], replaced.json()["recurrence"]) == (None, NIGHT)
    page = await get(client, "/alert-silences")
    assert page["silences"] == [(await client.get(path)).json()]
    assert page["silences"][0]["id"] == silence["id"]
    assert (await client.delete(path)).status_code == 200
    assert (await get(client, "/alert-silences"))["silences"] == []


async def test_a_silence_that_ended_says_so(client: httpx.AsyncClient) -> None:
    created = await client.post(SILENCES, json={"endsAt": "2020-01-01T00:00:00Z"})
    assert created.json()["state"] == "ended"


async def test_a_silence_that_is_not_valid_changes_nothing(client: httpx.AsyncClient) -> None:
    for body in (
        {"queues": "orders"},
        {"recurrence": {**NIGHT, "timeZone": "Europe/Nowhere"}},
        {"queue": ""},
    ):
        assert_problem(await client.post(SILENCES, json=body), 422, "invalid_request")
    assert_problem(await client.post(SILENCES, content=b"{"), 400, "malformed_body")
    assert (await get(client, "/alert-silences"))["silences"] == []


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"endsAt": "tomorrow"}, "endsAt", "endsAt must be a time in ISO 8601"),
        ({"startsAt": "2026-01-31T12:00:00"}, "startsAt", "with a time zone"),
        (
            {"recurrence": {"days": ["mon"], "from": "25:00", "to": "06:00"}},
            "recurrence.from",
            "recurrence.from must be a time of day, such as 22:00",
        ),
    ],
)
async def test_a_wrong_time_is_refused_in_plain_words(
    client: httpx.AsyncClient, fields: dict[str, object], field: str, words: str
) -> None:
    refused = await client.post(SILENCES, json=fields)
    detail = assert_problem(refused, 422, "invalid_request")
    assert words in detail
    assert refused.json()["field"] == field
    assert not {"^", "$", "`"} & set(detail)


async def test_an_unknown_silence_is_a_404(client: httpx.AsyncClient) -> None:
    path = f"{SILENCES}/{uuid4()}"
    for response in (
        await client.get(path),
        await client.put(path, json={}),
        await client.delete(path),
    ):
        assert_problem(response, 404, "unknown_alert_silence")
