"""Send a notice to a channel of any kind."""

from __future__ import annotations

from penstock.alerts.delivery.channel_definitions import (
    AlertmanagerChannel,
    AnyChannel,
    EmailChannel,
    PagerDutyChannel,
    SlackChannel,
    TeamsChannel,
    WebhookChannel,
)
from penstock.alerts.delivery.outbound import Outbound
from penstock.alerts.delivery.outgoing_notice import OutgoingNotice
from penstock.alerts.delivery.receivers.alertmanager_alert import send_alertmanager_alert
from penstock.alerts.delivery.receivers.email_message import send_email
from penstock.alerts.delivery.receivers.pagerduty_event import send_pagerduty_event
from penstock.alerts.delivery.receivers.slack_message import send_slack_message
from penstock.alerts.delivery.receivers.teams_card import send_teams_card
from penstock.alerts.delivery.receivers.webhook_request import send_webhook


async def send_notice(channel: AnyChannel, notice: OutgoingNotice, outbound: Outbound) -> str | None:
    """Send the notice once, and return a remark if it reached only some receivers. Raises DeliveryFailed."""
    match channel:
        case WebhookChannel():
            await send_webhook(channel, notice, outbound)
        case SlackChannel():
            await send_slack_message(channel, notice, outbound)
        case TeamsChannel():
            await send_teams_card(channel, notice, outbound)
        case PagerDutyChannel():
            await send_pagerduty_event(channel, notice, outbound)
        case AlertmanagerChannel():
            await send_alertmanager_alert(channel, notice, outbound)
        case EmailChannel():
            return await send_email(channel, notice, outbound)
    return None
