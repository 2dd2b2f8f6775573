"""Secrets of channels at rest, and the keys they are encrypted with."""

from __future__ import annotations

import pytest

from penstock.alerts.delivery.channel_secrets import ChannelKeyMissing, ChannelSecrets
from tests.unit.alerts.delivery.channels import ENCRYPTION_KEYS, OTHER_ENCRYPTION_KEYS

SECRETS: dict[str, object] = {"password": "pass-token"}


def test_secrets_are_encrypted() -> None:
    secrets = ChannelSecrets(ENCRYPTION_KEYS)
    stored = secrets.encrypt(SECRETS)
    assert b"pass-token" not in stored
    assert b"password" not in stored
    assert secrets.decrypt(stored) == SECRETS


def test_secrets_of_an_older_key_are_still_read() -> None:
    stored = ChannelSecrets(ENCRYPTION_KEYS).encrypt(SECRETS)
    assert ChannelSecrets(f"{OTHER_ENCRYPTION_KEYS},{ENCRYPTION_KEYS}").decrypt(stored) == SECRETS


def test_without_a_key_secrets_are_not_stored() -> None:
    with pytest.raises(ChannelKeyMissing, match="Set PENSTOCK_ENCRYPTION_KEYS"):
        ChannelSecrets("").encrypt(SECRETS)


@pytest.mark.parametrize("keys", ["", OTHER_ENCRYPTION_KEYS])
def test_a_process_without_the_key_says_what_to_do(keys: str) -> None:
    stored = ChannelSecrets(ENCRYPTION_KEYS).encrypt(SECRETS)
    with pytest.raises(ChannelKeyMissing, match=r"Add it to PENSTOCK_ENCRYPTION_KEYS\. Or save the channel"):
        ChannelSecrets(keys).decrypt(stored)


def test_a_channel_without_secrets_needs_no_key() -> None:
    secrets = ChannelSecrets("")
    assert secrets.decrypt(secrets.encrypt({})) == {}
