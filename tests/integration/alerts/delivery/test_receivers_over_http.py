"""Each kind of channel over a real HTTP connection: paths, headers and documents."""

from __future__ import annotations

import base64

from penstock.alerts.delivery.channel_service import parse_channel
from penstock.alerts.delivery.notice import ACKNOWLEDGED, OPENED, RESOLVED, TEST
from penstock.alerts.delivery.outbound import Outbound
from penstock.alerts.delivery.receivers.dispatch import send_notice
from tests.integration.alerts.delivery.http_receiver import HttpReceiver, ReceivedRequest, receive_http
from tests.unit.alerts.delivery.channels import channel_fields
from tests.unit.alerts.delivery.notices import INCIDENT_ID, outgoing_notice

ALL_TRANSITIONS = (OPENED, "update 1", ACKNOWLEDGED, RESOLVED)


async def send_all(
    outbound: Outbound, receiver: HttpReceiver, kind: str, *transitions: str, path: str = ""
) -> list[ReceivedRequest]:
    """Send a notice of each transition to a channel of this kind."""
    url = f"http://localhost:{receiver.port}{path}"
    channel = parse_channel(channel_fields(kind, url=url))
    for transition in transitions:
        assert await send_notice(channel, outgoing_notice(transition), outbound) is None
    return receiver.requests


async def test_pagerduty_gets_one_alert_per_incident(outbound: Outbound) -> None:
    async with receive_http() as receiver:
        requests = await send_all(outbound, receiver, "pagerduty", *ALL_TRANSITIONS, path="/v2/enqueue")
    events = [request.json for request in requests]
    assert [event["event_action"] for event in events] == ["trigger", "trigger", "acknowledge", "resolve"]
    assert {event["dedup_key"] for event in events} == {str(INCIDENT_ID)}
    assert {event["routing_key"] for event in events} == {"key-token"}
    assert {request.path for request in requests} == {"/v2/enqueue"}


async def test_a_test_of_pagerduty_leaves_no_open_alert(outbound: Outbound) -> None:
    async with receive_http() as receiver:
        requests = await send_all(outbound, receiver, "pagerduty", TEST)
    assert [request.json["event_action"] for request in requests] == ["trigger", "resolve"]
    assert len({request.json["dedup_key"] for request in requests}) == 1


async def test_alertmanager_gets_alerts_with_the_login(outbound: Outbound) -> None:
    async with receive_http() as receiver:
        requests = await send_all(outbound, receiver, "alertmanager", OPENED, RESOLVED, path="/alertmanager/")
    assert {request.path for request in requests} == {"/alertmanager/api/v2/alerts"}
    login = base64.b64encode(b"penstock:pass-token").decode()
    assert {request.headers["authorization"] for request in requests} == {f"Basic {login}"}
    [[opened], [resolved]] = [request.json for request in requests]
    assert opened["labels"] == resolved["labels"]
    assert opened["endsAt"] > resolved["endsAt"]


async def test_slack_and_teams_get_their_documents(outbound: Outbound) -> None:
    async with receive_http() as receiver:
        await send_all(outbound, receiver, "slack", OPENED, path="/services/T0/B0/x")
        await send_all(outbound, receiver, "teams", RESOLVED, path="/workflows/1?sig=x")
    slack, teams = receiver.requests
    assert slack.path == "/services/T0/B0/x"
    assert slack.json["blocks"][0]["text"]["text"] == ":red_circle: Firing: orders back up (critical)"
    assert teams.path == "/workflows/1?sig=x"
    assert teams.json["attachments"][0]["content"]["body"][0]["color"] == "Good"
