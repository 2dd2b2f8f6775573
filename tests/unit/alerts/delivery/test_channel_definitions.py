"""Channels as users write them, and what is shown of them."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from penstock.alerts.delivery.channel_definitions import list_secret_texts, split_secrets
from penstock.alerts.delivery.channel_service import parse_channel
from penstock.alerts.delivery.sender import redact
from penstock.errors import InvalidRequest
from tests.unit.alerts.delivery.channels import (
    CHANNEL_FIELDS,
    HOOK_URL,
    channel_fields,
    contains_secret,
)


@pytest.mark.parametrize("kind", CHANNEL_FIELDS)
def test_no_representation_of_a_channel_shows_its_secrets(kind: str) -> None:
    channel = parse_channel(channel_fields(kind))
    output = io.StringIO()
    Console(file=output).print(channel)
    settings, secrets = split_secrets(channel)
    assert secrets
    for text in (repr(channel), str(channel), f"{channel}", output.getvalue(), channel.target, str(settings)):
        assert not contains_secret(text)


@pytest.mark.parametrize("kind", CHANNEL_FIELDS)
def test_an_error_that_repeats_the_secrets_is_redacted(kind: str) -> None:
    channel = parse_channel(channel_fields(kind))
    text = f"Refused {' '.join(list_secret_texts(channel))}."
    assert contains_secret(text)
    assert not contains_secret(redact(text, channel))


def test_an_error_has_printable_characters_only() -> None:
    channel = parse_channel(channel_fields("webhook"))
    assert redact("no\x00 \x1b[31mred\n", channel) == "no? ?[31mred?"


@pytest.mark.parametrize("kind", ["webhook", "slack", "teams"])
def test_an_error_that_repeats_a_part_of_a_secret_url_is_redacted(kind: str) -> None:
    channel = parse_channel(channel_fields(kind))
    text = redact("Cannot POST /hook/path-token with sig=query-token", channel)
    assert text == "Cannot POST *** with ***"


@pytest.mark.parametrize(
    ("kind", "fields", "problem"),
    [
        ("webhook", {"url": "ftp://receiver.example/path-token"}, "http"),
        ("webhook", {"url": "https://user:pass-token@receiver.example/"}, "without a user"),
        ("webhook", {"url": "https:///path-token"}, "with a host"),
        ("webhook", {"url": "https://receiver.example:99999/path-token"}, "http"),
        ("webhook", {"url": "https://receiver.example/path-token\n"}, "control character"),
        ("webhook", {"signingSecrets": ["pass-token"]}, "whsec_"),
        ("webhook", {"signingSecrets": ["whsec_cGFzcy10b2tlbg=="]}, "24 to 64 bytes"),
        ("webhook", {"name": "a b"}, "name"),
        ("webhook", {"urll": "pass-token"}, "urll"),
        ("pagerduty", {"routingKey": ""}, "routingKey"),
        ("email", {"to": []}, "to"),
        ("email", {"to": ["ops@shop.example, boss@shop.example"]}, "to"),
        ("email", {"from": "penstock@shop.example\r\nBcc: all@shop.example"}, "control character"),
        ("email", {"security": "none"}, "needs encryption"),
        ("email", {"password": None}, "together"),
        ("alertmanager", {"url": "https://am.example?key=pass-token"}, "query"),
    ],
)
def test_a_channel_that_is_not_valid_is_refused_without_quoting_values(
    kind: str, fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidRequest, match=problem) as refusal:
        parse_channel(channel_fields(kind, **fields))
    assert "-token" not in refusal.value.detail


def test_the_target_of_a_webhook_is_the_start_of_its_url() -> None:
    assert parse_channel(channel_fields("webhook")).target == "https://receiver.example"
    assert parse_channel(
        channel_fields("slack", url=HOOK_URL.replace("example/", "example:8443/"))
    ).target == ("https://receiver.example:8443")
