"""Routes of alert rules."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx

from penstock.alerts.rules.alert_rule import RuleType
from tests.integration.api.calls import assert_problem
from tests.unit.alerts.delivery.channels import channel_fields

RULES = "/api/v1/alert-rules"
BACKLOG = {"name": "orders back up", "type": "BACKLOG", "queue": "orders*", "threshold": 1000}


async def create(client: httpx.AsyncClient, **fields: object) -> dict[str, Any]:
    response = await client.post(RULES, json={**BACKLOG, **fields})
    assert response.status_code == 201, response.text
    rule: dict[str, Any] = response.json()
    return rule


async def test_a_rule_is_created_changed_and_deleted(client: httpx.AsyncClient) -> None:
    rule = await create(client)
    assert rule["status"] is None

    changed = await client.put(f"{RULES}/{rule['id']}", json={**BACKLOG, "threshold": 5})
    assert changed.json()["threshold"] == 5
    assert (await client.get(RULES)).json()["rules"] == [changed.json()]
    assert (await client.get(f"{RULES}/{rule['id']}")).json() == changed.json()

    assert (await client.delete(f"{RULES}/{rule['id']}")).json() == {"deleted": True, "id": rule["id"]}
    assert_problem(await client.get(f"{RULES}/{rule['id']}"), 404, "unknown_alert_rule")
    assert (await client.get(RULES)).json() == {"rules": []}


async def test_an_invalid_rule_changes_nothing(client: httpx.AsyncClient) -> None:
    response = await client.post(RULES, json={**BACKLOG, "windowMinutes": 0})

    assert_problem(response, 422, "invalid_request")
    assert response.json()["field"] == "windowMinutes"
    assert (await client.get(RULES)).json() == {"rules": []}


async def test_two_rules_cannot_have_the_same_name(client: httpx.AsyncClient) -> None:
    await create(client)
    other = await create(client, name="other")

    assert_problem(await client.post(RULES, json=BACKLOG), 409, "wrong_state")
    assert_problem(await client.put(f"{RULES}/{other['id']}", json=BACKLOG), 409, "wrong_state")


async def test_a_rule_with_an_unknown_channel_is_refused(client: httpx.AsyncClient) -> None:
    response = await client.post(RULES, json={**BACKLOG, "channels": ["nope"]})

    assert "Channel 'nope' does not exist" in assert_problem(response, 422, "invalid_request")


async def test_an_unknown_rule_is_not_found(client: httpx.AsyncClient) -> None:
    path = f"{RULES}/{uuid4()}"

    assert_problem(await client.put(path, json=BACKLOG), 404, "unknown_alert_rule")
    assert_problem(await client.delete(path), 404, "unknown_alert_rule")


async def test_default_rules_need_a_channel_and_are_created_once(client: httpx.AsyncClient) -> None:
    assert_problem(await client.post(f"{RULES}/defaults", json={"channels": []}), 422, "invalid_request")
    await client.post("/api/v1/alert-channels", json=channel_fields("webhook"))

    first = await client.post(f"{RULES}/defaults", json={"channels": ["ops"]})
    second = await client.post(f"{RULES}/defaults", json={"channels": ["ops"]})

    assert len(first.json()["rules"]) == 5
    assert second.json() == first.json()


async def test_the_types_say_what_a_rule_of_them_needs(client: httpx.AsyncClient) -> None:
    listed = (await client.get(f"{RULES}/types")).json()["types"]
    types = {description["type"]: description for description in listed}
    assert list(types) == [rule_type.value for rule_type in RuleType]
    assert types["BACKLOG"]["threshold"] is None
    assert types["BACKLOG"]["statistics"] == ["min", "max", "avg", "last"]
    assert types["SLO"]["fields"] == ["objective", "withinSeconds"]
    assert types["CAPACITY_LOSS"]["operators"] == ["LESS_THAN"]
    untestable = [name for name, description in types.items() if not description["canBeTested"]]
    assert untestable == ["NEW_ERROR_GROUP", "EXPIRES_SOON", "PIPELINE_STALE"]
