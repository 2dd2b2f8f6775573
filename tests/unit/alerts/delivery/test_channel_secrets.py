"""Secrets of channels at rest, and the keys they are encrypted with."""

from __future__ import annotations

import base64
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.alerts.delivery.channel_secrets import ChannelSecrets, SecretsUnreadable

KEYS = "k1:" + base64.b64encode(bytes(range(32))).decode()
SECRETS: dict[str, object] = {"password": "pass-token"}


def test_secrets_are_encrypted_with_the_key_of_the_setting(tmp_path: Path) -> None:
    secrets = ChannelSecrets(KEYS, tmp_path)
    stored = secrets.encrypt(SECRETS)
    assert b"pass-token" not in stored
    assert b"password" not in stored
    assert secrets.decrypt(stored) == SECRETS
    assert not secrets.key_file.exists()


def test_without_the_setting_a_key_file_of_this_user_is_created(tmp_path: Path) -> None:
    secrets = ChannelSecrets("", tmp_path)
    stored = secrets.encrypt(SECRETS)
    assert stat.S_IMODE(secrets.key_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(secrets.key_file.parent.stat().st_mode) == 0o700
    assert [path.name for path in secrets.key_file.parent.iterdir()] == ["alert_key"]
    assert ChannelSecrets("", tmp_path).decrypt(stored) == SECRETS


def test_processes_that_start_together_use_the_same_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        stored = list(threads.map(lambda _: ChannelSecrets("", tmp_path).encrypt(SECRETS), range(32)))
    assert all(ChannelSecrets("", tmp_path).decrypt(secret) == SECRETS for secret in stored)


def test_the_key_file_still_decrypts_after_the_setting_is_made(tmp_path: Path) -> None:
    stored = ChannelSecrets("", tmp_path).encrypt(SECRETS)
    secrets = ChannelSecrets(KEYS, tmp_path)
    assert secrets.decrypt(stored) == SECRETS
    assert ChannelSecrets(KEYS, tmp_path / "other").decrypt(secrets.encrypt(SECRETS)) == SECRETS


def test_a_machine_without_the_key_says_what_to_set(tmp_path: Path) -> None:
    stored = ChannelSecrets("", tmp_path).encrypt(SECRETS)
    with pytest.raises(SecretsUnreadable, match="set the same PENSTOCK_ENCRYPTION_KEYS"):
        ChannelSecrets("", tmp_path / "other").decrypt(stored)


def test_a_channel_without_secrets_needs_no_key(tmp_path: Path) -> None:
    secrets = ChannelSecrets("", tmp_path)
    assert secrets.decrypt(secrets.encrypt({})) == {}
    assert not secrets.key_file.exists()
