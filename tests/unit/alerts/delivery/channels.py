"""Channels of every kind, with secrets that are easy to find."""

from __future__ import annotations

import base64

SECRETS = ("path-token", "query-token", "pass-token", "key-token")
"""Texts that no response, log or representation may contain."""

ENCRYPTION_KEYS = "k1:" + base64.b64encode(bytes(range(32))).decode()
OTHER_ENCRYPTION_KEYS = "k2:" + base64.b64encode(bytes(range(1, 33))).decode()

SIGNING_SECRET = "whsec_" + base64.b64encode(b"signing-secret of 24 byt").decode()
OTHER_SIGNING_SECRET = "whsec_" + base64.b64encode(b"another secret of 32 bytes here!").decode()

HOOK_URL = "https://receiver.example/hook/path-token?sig=query-token"

CHANNEL_FIELDS: dict[str, dict[str, object]] = {
    "webhook": {"url": HOOK_URL, "signingSecrets": [SIGNING_SECRET]},
    "slack": {"url": HOOK_URL},
    "teams": {"url": HOOK_URL},
    "pagerduty": {"routingKey": "key-token"},
    "alertmanager": {"url": "https://am.example", "username": "penstock", "password": "pass-token"},
    "email": {
        "host": "mail.example",
        "username": "penstock",
        "password": "pass-token",
        "from": "penstock@shop.example",
        "to": ["ops@shop.example"],
    },
}
"""The fields of a channel of each kind, without its name and kind."""


def channel_fields(kind: str, **fields: object) -> dict[str, object]:
    return {"name": "ops", "kind": kind, **CHANNEL_FIELDS[kind], **fields}


def contains_secret(text: str) -> bool:
    return any(secret in text for secret in (*SECRETS, SIGNING_SECRET, OTHER_SIGNING_SECRET))
