"""Send a notice as a webhook with the headers and signatures of Standard Webhooks."""

from __future__ import annotations

from datetime import datetime

import msgspec
from standardwebhooks import Webhook

from penstock.alerts.delivery.channel_definitions import WebhookChannel
from penstock.alerts.delivery.outbound import Outbound
from penstock.alerts.delivery.outgoing_notice import OutgoingNotice
from penstock.clock import Clock, iso, system_clock, to_utc

GONE = 410
"""The receiver says that its URL is gone for good: there is no other attempt."""


async def send_webhook(
    channel: WebhookChannel, notice: OutgoingNotice, outbound: Outbound, clock: Clock = system_clock
) -> None:
    """POST the notice. The header `webhook-id` is the notice's id, so a receiver can drop repetitions."""
    body = msgspec.json.encode(webhook_body(notice))
    headers = webhook_headers(channel, str(notice.id), body, to_utc(int(clock())))
    await outbound.post(channel.url, body, headers, final_status=GONE)


def webhook_body(notice: OutgoingNotice) -> dict[str, object]:
    """Return the event: its type, its time, and the notice as `data`."""
    event = notice.status_word.lower()
    return {
        "type": f"alert.{ {'firing': 'opened', 'update': 'updated'}.get(event, event) }",
        "timestamp": iso(notice.created_at),
        "data": {
            "id": str(notice.id),
            **msgspec.to_builtins(notice.message),
            "incidentUrl": notice.incident_url,
            "queueUrl": notice.queue_url,
        },
    }


def webhook_headers(
    channel: WebhookChannel, notice_id: str, body: bytes, sent_at: datetime
) -> dict[str, str]:
    """Return the headers; with several secrets, one signature of each, separated by spaces."""
    headers = {"webhook-id": notice_id, "webhook-timestamp": str(int(sent_at.timestamp()))}
    signatures = [
        Webhook(secret).sign(notice_id, sent_at, body.decode()) for secret in channel.signing_secrets
    ]
    return {**headers, "webhook-signature": " ".join(signatures)} if signatures else headers
