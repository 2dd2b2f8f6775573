"""The client of a request behind proxies."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from starlette.requests import Request

from penstock.api.http.client_address import TrustedProxies, client_address, is_https
from penstock.config import Settings
from penstock.errors import ConfigError

PROXIES = Settings(trusted_proxies="10.0.0.0/8, ::1, 2001:db8::/32")


def request_from(peer: str | None, *headers: tuple[str, str], settings: Settings = PROXIES) -> Request:
    app = FastAPI()
    app.state.trusted_proxies = TrustedProxies(settings)
    fields = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    client = (peer, 1234) if peer else None
    return Request(
        {
            "type": "http",
            "app": app,
            "client": client,
            "scheme": "http",
            "server": ("127.0.0.1", 7480),
            "path": "/",
            "query_string": b"",
            "headers": fields,
        }
    )


@pytest.mark.parametrize(
    "header",
    [
        ("X-Forwarded-For", "1.2.3.4"),
        ("Forwarded", "for=1.2.3.4;proto=https"),
        ("X-Forwarded-Proto", "https"),
    ],
)
@pytest.mark.parametrize("peer", ["192.0.2.1", "127.0.0.1", "::2"])
def test_headers_from_other_addresses_are_ignored(peer: str, header: tuple[str, str]) -> None:
    request = request_from(peer, header)
    assert client_address(request) == peer
    assert not is_https(request)


def test_without_proxies_nothing_is_trusted() -> None:
    request = request_from("127.0.0.1", ("X-Forwarded-For", "1.2.3.4"), settings=Settings())
    assert client_address(request) == "127.0.0.1"


@pytest.mark.parametrize(
    ("forwarded_for", "client"),
    [
        ("1.2.3.4", "1.2.3.4"),
        ("6.6.6.6, 1.2.3.4", "1.2.3.4"),
        ("6.6.6.6, 1.2.3.4, 10.9.9.9", "1.2.3.4"),
        ("10.1.1.1, 10.9.9.9", "10.1.1.1"),
        ("1.2.3.4:5678", "1.2.3.4"),
        ("[2001:db9::1]:5678", "2001:db9::1"),
        ("2001:db9::1", "2001:db9::1"),
        ("6.6.6.6, 2001:0db9::0001, 2001:db8::7", "2001:db9::1"),
        ("6.6.6.6, ::ffff:10.1.1.1", "6.6.6.6"),
        ("6.6.6.6, unknown", "10.0.0.1"),
        ("6.6.6.6, unknown, 10.2.2.2", "10.2.2.2"),
        ("", "10.0.0.1"),
        (", ,", "10.0.0.1"),
    ],
)
def test_the_last_address_that_is_no_proxy_is_the_client(forwarded_for: str, client: str) -> None:
    assert client_address(request_from("10.0.0.1", ("X-Forwarded-For", forwarded_for))) == client


def test_repeated_headers_are_one_list() -> None:
    request = request_from("10.0.0.1", ("X-Forwarded-For", "6.6.6.6"), ("X-Forwarded-For", "1.2.3.4"))
    assert client_address(request) == "1.2.3.4"


@pytest.mark.parametrize(
    ("forwarded", "client", "with_https"),
    [
        ("for=1.2.3.4;proto=https;by=10.0.0.1", "1.2.3.4", True),
        ('For="[2001:db9::1]:4711";Proto=HTTPS', "2001:db9::1", True),
        ("for=6.6.6.6;proto=https, for=1.2.3.4;proto=http", "1.2.3.4", False),
        ("for=1.2.3.4;proto=https, for=10.9.9.9;proto=http", "1.2.3.4", True),
        ("for=_hidden;proto=https", "10.0.0.1", False),
        ("proto=https", "10.0.0.1", False),
    ],
)
def test_the_standard_header_counts_too(forwarded: str, client: str, with_https: bool) -> None:
    request = request_from("10.0.0.1", ("Forwarded", forwarded))
    assert client_address(request) == client
    assert is_https(request) is with_https


def test_two_kinds_of_headers_that_differ_prove_nothing() -> None:
    headers = ("X-Forwarded-For", "1.2.3.4"), ("Forwarded", "for=6.6.6.6;proto=https")
    assert client_address(request_from("10.0.0.1", *headers)) == "10.0.0.1"
    same = ("X-Forwarded-For", "1.2.3.4"), ("Forwarded", "for=1.2.3.4")
    assert client_address(request_from("10.0.0.1", *same)) == "1.2.3.4"


@pytest.mark.parametrize(
    ("forwarded_for", "schemes", "with_https"),
    [
        ("1.2.3.4", "https", True),
        ("1.2.3.4", "http", False),
        ("1.2.3.4, 10.9.9.9", "https", True),
        ("1.2.3.4, 10.9.9.9", "https, http", True),
        ("1.2.3.4, 10.9.9.9", "http, https", False),
        ("1.2.3.4", "https, http", False),
        (None, "https", True),
    ],
)
def test_the_scheme_is_the_clients(forwarded_for: str | None, schemes: str, with_https: bool) -> None:
    headers = [("X-Forwarded-Proto", schemes)]
    if forwarded_for is not None:
        headers.append(("X-Forwarded-For", forwarded_for))
    assert is_https(request_from("10.0.0.1", *headers)) is with_https


def test_the_ipv6_form_of_a_proxy_is_trusted() -> None:
    assert client_address(request_from("::ffff:10.0.0.1", ("X-Forwarded-For", "1.2.3.4"))) == "1.2.3.4"
    assert client_address(request_from(None, ("X-Forwarded-For", "1.2.3.4"))) == ""


def test_a_list_that_is_no_list_of_networks_is_refused() -> None:
    with pytest.raises(ConfigError, match="PENSTOCK_TRUSTED_PROXIES must be networks"):
        TrustedProxies(Settings(trusted_proxies="proxy.example.com"))
