"""The keys of a provider: when they are read, and what happens while they cannot be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.access.people.key_set import (
    FIRST_READ_INTERVAL_S,
    MIN_INTERVAL_S,
    REFRESH_S,
    KeySet,
    import_keys,
    reader_of,
)
from penstock.errors import ProviderUnavailable
from tests.unit.access.people.signing_keys import ED25519, P256, RSA, jwks


class KeyDocument:
    """A JWKS document that changes, with a clock that the test sets."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document: dict[str, Any] | None = document
        self.reads = 0
        self.now_s = 1000.0
        self.keys = KeySet(self.read, monotonic=lambda: self.now_s)

    async def read(self) -> dict[str, Any]:
        self.reads += 1
        await asyncio.sleep(0)
        if self.document is None:
            raise ProviderUnavailable("away")
        return self.document


async def test_keys_are_read_once_for_concurrent_requests() -> None:
    document = KeyDocument(jwks(RSA))
    keys = await asyncio.gather(*(document.keys.find("rsa") for _ in range(10)))
    assert {key.kid for key in keys if key} == {"rsa"}
    assert document.reads == 1


async def test_an_unknown_key_id_reads_the_keys_again_at_most_every_30_seconds() -> None:
    document = KeyDocument(jwks(RSA))
    assert await document.keys.find("rsa")
    document.document = jwks(RSA, P256)
    for _ in range(5):
        assert await document.keys.find("p256") is None
    assert document.reads == 1
    document.now_s += MIN_INTERVAL_S
    assert await document.keys.find("p256")
    assert document.reads == 2


async def test_keys_are_read_again_in_the_background_when_they_are_old() -> None:
    document = KeyDocument(jwks(RSA, P256))
    assert await document.keys.find("rsa")
    version = document.keys.version
    document.document = jwks(P256)
    document.now_s += REFRESH_S
    assert await document.keys.find("rsa"), "a request must not wait for the provider"
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == "JWKS"))
    assert await document.keys.find("rsa") is None
    assert document.keys.version == version + 1


async def test_the_last_keys_stay_while_the_provider_is_away() -> None:
    document = KeyDocument(jwks(RSA))
    assert await document.keys.find("rsa")
    document.document = None
    document.now_s += 10 * REFRESH_S
    assert await document.keys.find("rsa")
    assert await document.keys.find("unknown") is None
    assert await document.keys.find("rsa")


async def test_without_any_keys_the_provider_is_unavailable() -> None:
    document = KeyDocument(jwks(RSA))
    document.document = None
    with pytest.raises(ProviderUnavailable):
        await document.keys.find("rsa")
    document.document = jwks(RSA)
    with pytest.raises(ProviderUnavailable):
        await document.keys.find("rsa")
    document.now_s += FIRST_READ_INTERVAL_S
    assert await document.keys.find("rsa")


def test_only_public_keys_for_signatures_are_used() -> None:
    encryption_key = {**P256.as_dict(private=False), "use": "enc"}
    secret = {"kty": "oct", "kid": "secret", "k": "c2VjcmV0"}
    broken = {"kty": "RSA", "kid": "broken", "n": "AQAB"}
    unknown = {"kty": "PQ", "kid": "unknown"}
    document = {"keys": [secret, broken, unknown, encryption_key, "text", *jwks(ED25519)["keys"]]}
    assert [key.kid for key in import_keys(document)] == ["ed25519"]


async def test_a_provider_without_a_list_of_keys_is_unavailable() -> None:
    with pytest.raises(ProviderUnavailable):
        await KeyDocument({"keys": None}).keys.find("rsa")


async def test_a_file_that_cannot_be_read_is_reported_once_it_is_needed(tmp_path: Any) -> None:
    with pytest.raises(ProviderUnavailable):
        await KeySet(reader_of(str(tmp_path / "missing.json"))).find("rsa")
