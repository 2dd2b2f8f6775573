"""Send a notice to an incoming webhook of Slack, as blocks."""

from __future__ import annotations

import msgspec

from penstock.alerts.delivery.channel_definitions import SlackChannel
from penstock.alerts.delivery.outbound import Outbound
from penstock.alerts.delivery.outgoing_notice import OutgoingNotice, shorten_text

MAX_HEADER_LENGTH = 150
MAX_TEXT_LENGTH = 2_900
MAX_FIELD_LENGTH = 1_900

_EMOJI = {"Resolved": ":white_check_mark:", "Acknowledged": ":eyes:", "Test": ":test_tube:"}
_SEVERITY_EMOJI = {"critical": ":red_circle:", "warning": ":large_yellow_circle:"}
_UNKNOWN_EMOJI = ":large_blue_circle:"
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


async def send_slack_message(channel: SlackChannel, notice: OutgoingNotice, outbound: Outbound) -> None:
    """POST the blocks. Slack has no id of a message to repeat, so the id is in the last line."""
    await outbound.post(channel.url, msgspec.json.encode(slack_body(notice)))


def slack_body(notice: OutgoingNotice) -> dict[str, object]:
    """Return the blocks, and a text for notifications and screen readers."""
    message = notice.message
    emoji = _EMOJI.get(notice.status_word) or _SEVERITY_EMOJI.get(message.severity, _UNKNOWN_EMOJI)
    links = " · ".join(f"<{_escape(url)}|{label}>" for label, url in notice.links())
    blocks: list[dict[str, object]] = [
        {
            "type": "header",
            "text": {
                "type": "plain_text",
                "text": shorten_text(f"{emoji} {notice.title}", MAX_HEADER_LENGTH),
                "emoji": True,
            },
        },
        _section({"text": _markdown(message.summary, MAX_TEXT_LENGTH)}),
        _section({"fields": [_field(label, text) for label, text in notice.facts()]}),
    ]
    if links:
        blocks.append(_section({"text": {"type": "mrkdwn", "text": links}}))
    blocks.append({"type": "context", "elements": [_markdown(f"Penstock notice {notice.id}", 200)]})
    return {"text": f"{_escape(notice.title)}: {_escape(message.summary)}", "blocks": blocks}


def _section(content: dict[str, object]) -> dict[str, object]:
    return {"type": "section", **content}


def _field(label: str, text: str) -> dict[str, str]:
    return {"type": "mrkdwn", "text": f"*{label}*\n{_escape(text, MAX_FIELD_LENGTH)}"}


def _markdown(text: str, max_length: int) -> dict[str, str]:
    return {"type": "mrkdwn", "text": _escape(text, max_length)}


def _escape(text: str, max_length: int = MAX_TEXT_LENGTH) -> str:
    """Escape the characters that Slack reads as markup, and cut the result to what it accepts."""
    escaped = ""
    for character in text:
        escaped_character = _ESCAPES.get(character, character)
        if len(escaped) + len(escaped_character) >= max_length:
            return escaped + "…"
        escaped += escaped_character
    return escaped
