"""Requests to an identity provider that answers in unexpected ways, and keys at a URL."""

from __future__ import annotations

import json

import pytest

from penstock.access.people.jwt_verifier import JwtVerifier
from penstock.access.people.key_set import MIN_INTERVAL_S, KeySet, reader_of
from penstock.access.people.provider_http import MAX_RESPONSE_BYTES, fetch_json, post_form
from penstock.errors import ProviderUnavailable, Unauthorized
from tests.integration.alerts.delivery.http_receiver import http_response, receive_http
from tests.unit.access.people.signing_keys import AUDIENCE, ISSUER, NOW, P256, RSA, jwks, sign, valid_claims


@pytest.mark.parametrize(
    "response",
    [
        http_response(500, b"{}"),
        http_response(404, b"{}"),
        http_response(302, b"{}", Location="http://127.0.0.1:1/elsewhere"),
        http_response(200, b"[]"),
        http_response(200, b"<html>"),
        http_response(200, b"\xff"),
        http_response(200, b'{"keys": "' + b"x" * MAX_RESPONSE_BYTES + b'"}'),
        b"no HTTP\r\n\r\n",
    ],
)
async def test_anything_but_a_json_object_is_unavailable(response: bytes) -> None:
    async with receive_http([response]) as receiver:
        with pytest.raises(ProviderUnavailable, match="identity provider"):
            await fetch_json(receiver.url)
        assert len(receiver.requests) == 1, "redirects are not followed"


@pytest.mark.parametrize("url", ["http://localhost:1/", "http://loc alhost/", "http://[::1/"])
async def test_an_address_without_a_provider_is_unavailable(url: str) -> None:
    with pytest.raises(ProviderUnavailable, match="does not answer"):
        await fetch_json(url)


async def test_a_form_is_sent_with_the_secret_of_the_client() -> None:
    async with receive_http([http_response(400, b'{"error": "invalid_grant"}')]) as receiver:
        assert await post_form(receiver.url, {"code": "a b"}, ("id", "secret")) == (
            400,
            {"error": "invalid_grant"},
        )
        [request] = receiver.requests
    assert request.body == b"code=a+b"
    assert request.headers["authorization"] == "Basic aWQ6c2VjcmV0"
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"


async def test_keys_at_a_url_rotate() -> None:
    now_s = 0.0
    documents = [http_response(200, json.dumps(jwks(*keys)).encode()) for keys in ((RSA,), (RSA, P256))]
    async with receive_http(documents) as receiver:
        keys = KeySet(reader_of(receiver.url), monotonic=lambda: now_s)
        verifier = JwtVerifier(keys, issuer=ISSUER, audience=AUDIENCE, clock=lambda: NOW)
        assert await verifier.verify(sign(valid_claims()))
        new_token = sign(valid_claims(), P256, "ES256")
        with pytest.raises(Unauthorized, match="its key is not among those"):
            await verifier.verify(new_token)
        assert len(receiver.requests) == 1
        now_s = MIN_INTERVAL_S
        assert await verifier.verify(new_token)
        assert len(receiver.requests) == 2
    now_s = 100 * MIN_INTERVAL_S
    assert await verifier.verify(new_token), "the last keys stay while the provider is away"
    assert await verifier.verify(new_token)
