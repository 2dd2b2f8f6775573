"""Payloads at rest: encryption, decryption, key rotation, and invalid keys."""

from __future__ import annotations

import base64

import pytest

from penstock.encryption import KeyMissing, PayloadCipher
from penstock.errors import ConfigError


def key(number: int) -> str:
    return base64.b64encode(bytes([number]) * 32).decode()


@pytest.mark.parametrize("payload", [b"", b"null", b'{"a": 1}', b"\x01 looks encrypted", b"x" * 100_000])
def test_decryption_returns_the_encrypted_payload(payload: bytes) -> None:
    cipher = PayloadCipher(f"k1:{key(1)}")
    encrypted = cipher.encrypt(payload)
    assert cipher.decrypt(encrypted) == payload
    assert not payload or payload not in encrypted


def test_every_encryption_of_a_payload_differs() -> None:
    cipher = PayloadCipher(f"k1:{key(1)}")
    assert len({cipher.encrypt(b"1") for _ in range(100)}) == 100


def test_plain_payloads_pass_through_with_and_without_keys() -> None:
    for cipher in (PayloadCipher(), PayloadCipher(f"k1:{key(1)}")):
        assert cipher.decrypt(b'{"plain": true}') == b'{"plain": true}'
        assert cipher.decrypt(b"") == b""


def test_the_first_key_encrypts_and_older_keys_still_decrypt() -> None:
    old = PayloadCipher(f"k1:{key(1)}")
    rotated = PayloadCipher(f"k2:{key(2)},k1:{key(1)}")
    assert rotated.decrypt(old.encrypt(b"1")) == b"1"
    encrypted = rotated.encrypt(b"2")
    assert encrypted[2:4] == b"k2"
    with pytest.raises(KeyMissing, match="k2"):
        old.decrypt(encrypted)


def test_without_a_key_the_error_names_the_setting() -> None:
    cipher = PayloadCipher()
    assert not cipher.can_encrypt
    with pytest.raises(KeyMissing, match="PENSTOCK_ENCRYPTION_KEYS"):
        cipher.encrypt(b"1")
    with pytest.raises(KeyMissing, match="Add it to PENSTOCK_ENCRYPTION_KEYS"):
        cipher.decrypt(PayloadCipher(f"k1:{key(1)}").encrypt(b"1"))


def test_a_different_key_with_the_same_id_does_not_decrypt() -> None:
    with pytest.raises(KeyMissing, match="does not decrypt"):
        PayloadCipher(f"k1:{key(2)}").decrypt(PayloadCipher(f"k1:{key(1)}").encrypt(b"1"))


def test_a_changed_byte_is_detected_at_any_position() -> None:
    cipher = PayloadCipher(f"k1:{key(1)}")
    encrypted = cipher.encrypt(b"payload")
    for position in range(1, len(encrypted)):
        changed = bytearray(encrypted)
        changed[position] ^= 0x80
        with pytest.raises(KeyMissing):
            cipher.decrypt(bytes(changed))


def test_a_truncated_payload_is_detected_at_any_length() -> None:
    cipher = PayloadCipher(f"k1:{key(1)}")
    encrypted = cipher.encrypt(b"payload")
    for length in range(1, len(encrypted)):
        with pytest.raises(KeyMissing):
            cipher.decrypt(encrypted[:length])


@pytest.mark.parametrize(
    "keys",
    [
        "k1",
        ":" + key(1),
        "k1:",
        "k1:short",
        "k1:" + base64.b64encode(b"x" * 31).decode(),
        "k1:" + base64.b64encode(b"x" * 33).decode(),
        "k1:not base64!",
        f"k1:{key(1)},nonsense",
        "é" * 200 + ":" + key(1),
        f"k1:{key(1)},k1:{key(2)}",
    ],
)
def test_invalid_keys_are_rejected_with_the_expected_format(keys: str) -> None:
    with pytest.raises(ConfigError, match="base64"):
        PayloadCipher(keys)


def test_spaces_around_keys_are_ignored() -> None:
    assert PayloadCipher(f" k1:{key(1)} , k2:{key(2)}").can_encrypt
