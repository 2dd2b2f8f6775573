"""Payloads at rest: sealed, opened, rotated, and refused when something does not fit."""

from __future__ import annotations

import base64

import pytest

from penstock.broker.encryption import KeyMissing, PayloadCipher
from penstock.errors import ConfigError


def key(number: int) -> str:
    return base64.b64encode(bytes([number]) * 32).decode()


@pytest.mark.parametrize("payload", [b"", b"null", b'{"a": 1}', b"\x01 looks sealed", b"x" * 100_000])
def test_what_is_sealed_opens_to_the_same_bytes(payload: bytes) -> None:
    cipher = PayloadCipher(f"k1:{key(1)}")
    sealed = cipher.encrypt(payload)
    assert cipher.decrypt(sealed) == payload
    assert not payload or payload not in sealed


def test_the_same_payload_never_looks_the_same() -> None:
    cipher = PayloadCipher(f"k1:{key(1)}")
    assert len({cipher.encrypt(b"1") for _ in range(100)}) == 100


def test_plain_payloads_pass_through_with_and_without_keys() -> None:
    for cipher in (PayloadCipher(), PayloadCipher(f"k1:{key(1)}")):
        assert cipher.decrypt(b'{"plain": true}') == b'{"plain": true}'
        assert cipher.decrypt(b"") == b""


def test_a_new_key_seals_and_the_old_one_still_opens() -> None:
    old = PayloadCipher(f"k1:{key(1)}")
    rotated = PayloadCipher(f"k2:{key(2)},k1:{key(1)}")
    assert rotated.decrypt(old.encrypt(b"1")) == b"1"
    sealed = rotated.encrypt(b"2")
    assert sealed[2:4] == b"k2"
    with pytest.raises(KeyMissing, match="k2"):
        old.decrypt(sealed)


def test_without_a_key_nothing_is_sealed_and_the_error_says_what_to_set() -> None:
    cipher = PayloadCipher()
    assert not cipher.can_encrypt
    with pytest.raises(KeyMissing, match="PENSTOCK_ENCRYPTION_KEYS"):
        cipher.encrypt(b"1")
    with pytest.raises(KeyMissing, match="Add it to PENSTOCK_ENCRYPTION_KEYS"):
        cipher.decrypt(PayloadCipher(f"k1:{key(1)}").encrypt(b"1"))


def test_another_key_under_the_same_name_does_not_open() -> None:
    with pytest.raises(KeyMissing, match="does not decrypt"):
        PayloadCipher(f"k1:{key(2)}").decrypt(PayloadCipher(f"k1:{key(1)}").encrypt(b"1"))


def test_a_byte_changed_anywhere_is_noticed() -> None:
    cipher = PayloadCipher(f"k1:{key(1)}")
    sealed = cipher.encrypt(b"payload")
    for at in range(1, len(sealed)):
        changed = bytearray(sealed)
        changed[at] ^= 0x80
        with pytest.raises(KeyMissing):
            cipher.decrypt(bytes(changed))


def test_a_sealed_payload_cut_short_anywhere_is_noticed() -> None:
    cipher = PayloadCipher(f"k1:{key(1)}")
    sealed = cipher.encrypt(b"payload")
    for length in range(1, len(sealed)):
        with pytest.raises(KeyMissing):
            cipher.decrypt(sealed[:length])


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
def test_keys_that_do_not_fit_are_refused_with_the_way_to_make_one(keys: str) -> None:
    with pytest.raises(ConfigError, match="base64"):
        PayloadCipher(keys)


def test_spaces_around_keys_do_not_matter() -> None:
    assert PayloadCipher(f" k1:{key(1)} , k2:{key(2)}").can_encrypt
