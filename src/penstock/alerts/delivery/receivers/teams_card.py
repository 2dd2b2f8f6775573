"""Send a notice to a workflow of Microsoft Teams, as an Adaptive Card."""

from __future__ import annotations

import msgspec

from penstock.alerts.delivery.channel_definitions import TeamsChannel
from penstock.alerts.delivery.outbound import Outbound
from penstock.alerts.delivery.outgoing_notice import OutgoingNotice, shorten_text

MAX_TEXT_LENGTH = 2_000
"""Teams refuses cards of more than 28 KB."""

_COLOURS = {"critical": "Attention", "warning": "Warning"}


async def send_teams_card(channel: TeamsChannel, notice: OutgoingNotice, outbound: Outbound) -> None:
    """POST the card. Teams has no id of a card to repeat, so the id is in the last line."""
    await outbound.post(channel.url, msgspec.json.encode(teams_body(notice)))


def teams_body(notice: OutgoingNotice) -> dict[str, object]:
    """Return the message with the card as its attachment."""
    return {
        "type": "message",
        "attachments": [
            {
                "contentType": "application/vnd.microsoft.card.adaptive",
                "contentUrl": None,
                "content": {
                    "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                    "type": "AdaptiveCard",
                    "version": "1.4",
                    "msteams": {"width": "Full"},
                    "body": _card_body(notice),
                    "actions": [
                        {"type": "Action.OpenUrl", "title": label, "url": url}
                        for label, url in notice.links()
                    ],
                },
            }
        ],
    }


def _card_body(notice: OutgoingNotice) -> list[dict[str, object]]:
    is_over = notice.message.is_resolved
    colour = "Good" if is_over else _COLOURS.get(notice.message.severity, "Default")
    facts = [{"title": label, "value": shorten_text(text, MAX_TEXT_LENGTH)} for label, text in notice.facts()]
    return [
        _text_block(notice.title, size="Medium", weight="Bolder", color=colour),
        _text_block(shorten_text(notice.message.summary, MAX_TEXT_LENGTH)),
        {"type": "FactSet", "facts": facts},
        _text_block(f"Penstock notice {notice.id}", size="Small", isSubtle=True),
    ]


def _text_block(text: str, **style: object) -> dict[str, object]:
    return {"type": "TextBlock", "text": text, "wrap": True, **style}
