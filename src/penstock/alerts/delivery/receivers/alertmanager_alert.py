"""Send a notice to Prometheus Alertmanager, which groups, silences and routes it with the others.

Alertmanager knows an alert by its labels, and the incident's id is one of them: a repeated notice changes
nothing. It ends an alert that is not repeated within its `resolve_timeout`, unless the alert says when it
ends. So an open incident ends far in the future, and a resolved one at the time it was resolved.
"""

from __future__ import annotations

import base64
import re
from datetime import datetime, timedelta

import msgspec

from penstock.alerts.delivery.channel_definitions import AlertmanagerChannel
from penstock.alerts.delivery.notice import TEST
from penstock.alerts.delivery.outbound import Outbound
from penstock.alerts.delivery.outgoing_notice import OutgoingNotice
from penstock.clock import iso

OPEN_FOR = timedelta(days=31)
"""How long an incident stays open in Alertmanager if no resolved notice arrives."""
TEST_FOR = timedelta(minutes=5)

_INVALID_LABEL_CHARACTER = re.compile(r"[^A-Za-z0-9_]")


async def send_alertmanager_alert(
    channel: AlertmanagerChannel, notice: OutgoingNotice, outbound: Outbound
) -> None:
    """POST the alert to `/api/v2/alerts`."""
    headers = {}
    if channel.username is not None:
        credentials = base64.b64encode(f"{channel.username}:{channel.password}".encode()).decode()
        headers["Authorization"] = f"Basic {credentials}"
    url = f"{channel.url.rstrip('/')}/api/v2/alerts"
    await outbound.post(url, msgspec.json.encode([alertmanager_alert(notice)]), headers)


def alertmanager_alert(notice: OutgoingNotice) -> dict[str, object]:
    """Return the alert. Its labels are the same in all notices of an incident."""
    message = notice.message
    labels = {_label_name(name): value for name, value in message.labels.items() if value}
    labels |= {
        "alertname": message.rule_name,
        "severity": message.severity,
        "environment": message.environment,
        "rule_type": message.rule_type,
        "incident": notice.incident_key,
    }
    annotations = {
        "summary": message.summary,
        "cause": message.cause or "",
        "runbook_url": message.runbook or "",
        "queues": "\n".join(f"{queue.name}: {queue.summary}" for queue in message.queues),
    }
    alert: dict[str, object] = {
        "labels": labels,
        "annotations": {name: text for name, text in annotations.items() if text},
        "startsAt": iso(message.opened_at),
        "endsAt": iso(_ends_at(notice)),
    }
    if notice.incident_url:
        alert["generatorURL"] = notice.incident_url
    return alert


def _ends_at(notice: OutgoingNotice) -> datetime:
    message = notice.message
    if message.is_resolved:
        return message.resolved_at or notice.created_at
    return notice.created_at + (TEST_FOR if message.transition == TEST else OPEN_FOR)


def _label_name(name: str) -> str:
    """Replace the characters that Prometheus does not allow in a label's name."""
    valid = _INVALID_LABEL_CHARACTER.sub("_", name)
    return f"_{valid}" if not valid or valid[0].isdigit() else valid
