"""How each kind of channel formats a notice."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from penstock.alerts.delivery.channel_definitions import PagerDutyChannel
from penstock.alerts.delivery.notice import (
    ACKNOWLEDGED,
    OPENED,
    RESOLVED,
    TEST,
    NoticeQueue,
)
from penstock.alerts.delivery.outgoing_notice import OutgoingNotice, queue_page_path
from penstock.alerts.delivery.receivers.alertmanager_alert import OPEN_FOR, alertmanager_alert
from penstock.alerts.delivery.receivers.pagerduty_event import pagerduty_body
from penstock.alerts.delivery.receivers.slack_message import slack_body
from penstock.alerts.delivery.receivers.teams_card import teams_body
from penstock.alerts.delivery.receivers.webhook_request import webhook_body
from tests.unit.alerts.delivery.notices import outgoing_notice

PAGERDUTY = PagerDutyChannel(name="ops", routing_key="key")
TRANSITIONS = (OPENED, "update 1", ACKNOWLEDGED, RESOLVED, TEST)


def huge_notice() -> OutgoingNotice:
    """A notice that is larger than any receiver accepts."""
    queues = tuple(NoticeQueue(name="q" * 255, summary="x" * 300) for _ in range(20))
    return outgoing_notice(
        summary="<&>" * 2_000, rule_name="r" * 255, queues=queues, queue_count=500, cause="c" * 3_000
    )


def as_json(document: object) -> Any:
    return json.loads(msgspec.json.encode(document))


def test_a_webhook_has_the_type_of_its_event_and_the_whole_notice() -> None:
    types = [webhook_body(outgoing_notice(transition))["type"] for transition in TRANSITIONS]
    assert types == ["alert.opened", "alert.updated", "alert.acknowledged", "alert.resolved", "alert.test"]
    data = as_json(webhook_body(outgoing_notice()))["data"]
    assert data["id"] == str(outgoing_notice().id)
    assert data["incidentId"] == str(outgoing_notice().message.incident_id)
    assert data["queues"] == [
        {
            "name": "orders",
            "summary": "120 messages wait",
            "value": 120.0,
            "threshold": 100.0,
            "resolved": False,
        }
    ]
    assert data["openedAt"] == "2026-03-01T12:00:00Z"


def test_slack_blocks_stay_within_its_limits_and_escape_markup() -> None:
    body = as_json(slack_body(huge_notice()))
    header, summary, facts, *_ = body["blocks"]
    assert header["type"] == "header"
    assert len(header["text"]["text"]) <= 150
    assert "<&>" not in summary["text"]["text"]
    assert all(len(block["text"]["text"]) <= 3_000 for block in body["blocks"] if "text" in block)
    assert len(facts["fields"]) <= 10
    assert all(len(fact["text"]) <= 2_000 for fact in facts["fields"])


def test_slack_and_teams_show_summary_cause_links_and_the_id() -> None:
    notice = outgoing_notice()
    for body in (slack_body(notice), teams_body(notice)):
        text = msgspec.json.encode(body).decode()
        for expected in (notice.message.summary, notice.message.cause, notice.incident_url, str(notice.id)):
            assert str(expected) in text


def test_the_link_to_a_queue_shows_the_time_of_the_incident() -> None:
    queues = (NoticeQueue(name="", summary="x"), NoticeQueue(name="a/b c", summary="x"))
    notice = outgoing_notice(RESOLVED, queues=queues)
    path = "/console/queues/a%2Fb%20c?from=2026-03-01T11:30:00.000Z&to=2026-03-01T12:37:00.000Z"
    path += "&environment=default/default/default"
    assert queue_page_path(notice.message, notice.created_at) == path
    assert queue_page_path(outgoing_notice(queues=()).message, notice.created_at) is None


def test_a_teams_card_stays_within_its_limit() -> None:
    body = as_json(teams_body(huge_notice()))
    assert len(msgspec.json.encode(body)) < 28_000
    card = body["attachments"][0]
    assert card["contentType"] == "application/vnd.microsoft.card.adaptive"
    assert card["content"]["type"] == "AdaptiveCard"


def test_pagerduty_events_of_an_incident_have_the_same_key() -> None:
    keys = {
        pagerduty_body(PAGERDUTY, outgoing_notice(transition), "trigger")["dedup_key"]
        for transition in (OPENED, "update 1", RESOLVED)
    }
    assert keys == {str(outgoing_notice().message.incident_id)}
    event = as_json(pagerduty_body(PAGERDUTY, huge_notice(), "trigger"))
    assert event["payload"]["severity"] == "critical"
    assert len(event["payload"]["summary"]) <= 1_024
    assert "payload" not in pagerduty_body(PAGERDUTY, outgoing_notice(RESOLVED), "resolve")


def test_alertmanager_sees_the_same_labels_until_the_incident_ends() -> None:
    opened, resolved = alertmanager_alert(outgoing_notice()), alertmanager_alert(outgoing_notice(RESOLVED))
    assert opened["labels"] == resolved["labels"]
    assert opened["startsAt"] == resolved["startsAt"] == "2026-03-01T12:00:00.000Z"
    assert resolved["endsAt"] == "2026-03-01T12:07:00.000Z"
    assert timedelta(days=7) < OPEN_FOR
    assert str(opened["endsAt"]) > "2026-03-31"
    assert str(alertmanager_alert(outgoing_notice(TEST))["endsAt"]) < "2026-03-01T12:10"


def test_alertmanager_gets_valid_label_names() -> None:
    alert = alertmanager_alert(outgoing_notice(labels={"team-name": "shop", "1st": "yes", "empty": ""}))
    assert alert["labels"] == {
        "team_name": "shop",
        "_1st": "yes",
        "alertname": "orders back up",
        "severity": "critical",
        "environment": "default/default/default",
        "rule_type": "BACKLOG",
        "incident": str(outgoing_notice().message.incident_id),
    }


@pytest.mark.parametrize(
    ("transition", "title"),
    list(zip(TRANSITIONS, ("Firing", "Update", "Acknowledged", "Resolved", "Test"), strict=True)),
)
def test_the_title_says_what_happened(transition: str, title: str) -> None:
    assert outgoing_notice(transition).title == f"{title}: orders back up (critical)"


def test_the_facts_list_some_queues_and_count_the_rest() -> None:
    queues = tuple(NoticeQueue(name=f"q{number}", summary="waits") for number in range(20))
    facts = dict(outgoing_notice(queues=queues, queue_count=500).facts())
    assert facts["Queues"] == "q0, q1, q2, q3, q4 and 495 more"
    assert facts["Opened"] == "2026-03-01 12:00:00 UTC"
