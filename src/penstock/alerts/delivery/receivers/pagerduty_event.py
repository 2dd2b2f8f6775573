"""Send a notice to PagerDuty, as events of its Events API v2."""

from __future__ import annotations

import msgspec

from penstock.alerts.delivery.channel_definitions import PagerDutyChannel
from penstock.alerts.delivery.notice import ACKNOWLEDGED, RESOLVED, TEST
from penstock.alerts.delivery.outbound import Outbound
from penstock.alerts.delivery.outgoing_notice import OutgoingNotice, shorten_text
from penstock.clock import iso

MAX_SUMMARY_LENGTH = 1_024

_ACTIONS = {ACKNOWLEDGED: "acknowledge", RESOLVED: "resolve"}


async def send_pagerduty_event(channel: PagerDutyChannel, notice: OutgoingNotice, outbound: Outbound) -> None:
    """Send an event. Its `dedup_key` is the incident's id, so a repeated event changes nothing.

    A test triggers an alert and resolves it at once.
    """
    transition = notice.message.transition
    actions = ["trigger", "resolve"] if transition == TEST else [_ACTIONS.get(transition, "trigger")]
    for action in actions:
        await outbound.post(channel.url, msgspec.json.encode(pagerduty_body(channel, notice, action)))


def pagerduty_body(channel: PagerDutyChannel, notice: OutgoingNotice, action: str) -> dict[str, object]:
    """Return the event. PagerDuty takes the details from triggers only."""
    event: dict[str, object] = {
        "routing_key": channel.routing_key,
        "event_action": action,
        "dedup_key": notice.incident_key,
    }
    if action != "trigger":
        return event
    message = notice.message
    event["payload"] = {
        "summary": shorten_text(f"{message.rule_name}: {message.summary}", MAX_SUMMARY_LENGTH),
        "source": f"penstock {message.environment}",
        "severity": message.severity,
        "timestamp": iso(message.opened_at),
        "component": message.queues[0].name if len(message.queues) == 1 else "",
        "class": message.rule_type,
        "custom_details": {
            **dict(notice.facts()),
            "queues": [f"{queue.name}: {queue.summary}" for queue in message.queues],
            "notice": str(notice.id),
        },
    }
    event["client"] = "Penstock"
    event["links"] = [{"href": url, "text": label} for label, url in notice.links()]
    if notice.incident_url:
        event["client_url"] = notice.incident_url
    return event
