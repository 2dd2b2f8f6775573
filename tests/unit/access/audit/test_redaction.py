"""No secret reaches the audit log, by the name of its field or by its form."""

from __future__ import annotations

import json

import pytest

from penstock.access.audit.redaction import REDACTED, clean_text, redact

CANARY = "canary-4711"


@pytest.mark.parametrize(
    "name",
    [
        *("secret", "signingSecrets", "password", "token", "X-CSRF-Token", "access_token", "Authorization"),
        *("cookie", "apiKey", "routing_key", "credentials", "url", "data", "payload", "oidcClientSecret"),
    ],
)
def test_a_secret_field_is_redacted_at_any_depth(name: str) -> None:
    for value in (CANARY, [CANARY], {"value": CANARY}, [[CANARY]]):
        redacted = redact({"settings": [{name: value, "name": "pager"}]})
        assert redacted == {"settings": [{name: REDACTED, "name": "pager"}]}


def test_other_fields_stay() -> None:
    fields = {
        "secretFields": ["url"],
        "tokenId": "0193",
        "secrets": [{"prefix": "pk_abcdefg", "createdAt": "2026-01-01T00:00:00Z"}],
        "password": None,
        "concurrency": 5,
        "paused": False,
        "queues": ["orders-*"],
        "key": "orders",
    }
    assert redact(fields) == fields


@pytest.mark.parametrize(
    "text",
    [
        "pk_" + CANARY * 4,
        f"see https://user:{CANARY}@example.com/path",
        f"whsec_{CANARY}",
        f"Bearer eyJhbGciOiJub25lIn0.{CANARY}.{CANARY}",
        f"xoxb-{CANARY}",
    ],
)
def test_credentials_are_redacted_in_any_text(text: str) -> None:
    for redacted in (clean_text(text), json.dumps(redact({"comment": [text], text: 1}))):
        assert CANARY not in redacted
        assert REDACTED in redacted


def test_texts_that_postgresql_cannot_store_are_cleaned() -> None:
    assert redact(["a\0b", "c\ud800d"]) == ["ab", "c?d"]
