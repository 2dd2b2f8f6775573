"""Notices for tests of receivers."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from penstock.alerts.delivery.notice import OPENED, RESOLVED, TEST, NoticeMessage, NoticeQueue
from penstock.alerts.delivery.outgoing_notice import OutgoingNotice

OPENED_AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
INCIDENT_ID = uuid.UUID("0195c000-0000-7000-8000-000000000001")


def notice_message(
    incident_id: uuid.UUID | None = INCIDENT_ID, transition: str = OPENED, **fields: Any
) -> NoticeMessage:
    message = NoticeMessage(
        incident_id=None if transition == TEST else incident_id,
        transition=transition,
        environment="default/default/default",
        rule_name="orders back up",
        rule_type="BACKLOG",
        severity="critical",
        summary="120 messages wait in orders, more than 100 for 5 min.",
        opened_at=OPENED_AT,
        resolved_at=OPENED_AT + timedelta(minutes=7) if transition == RESOLVED else None,
        queues=(NoticeQueue(name="orders", summary="120 messages wait", value=120, threshold=100),),
        queue_count=1,
        cause="No consumer has popped from orders for 12 min.",
        labels={"team": "shop"},
        runbook="https://example.com/runbooks/orders",
        incident_path="/#incidents/1",
    )
    return msgspec.structs.replace(message, **fields)


def outgoing_notice(transition: str = OPENED, **fields: Any) -> OutgoingNotice:
    return OutgoingNotice(
        uuid.UUID("0195c000-0000-7000-8000-000000000002"),
        OPENED_AT + timedelta(seconds=30),
        notice_message(transition=transition, **fields),
        "https://penstock.example/#incidents/1",
    )
