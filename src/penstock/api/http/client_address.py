"""Where a request comes from: its client's address and scheme, also behind proxies.

A proxy reports the client in `X-Forwarded-For` and `X-Forwarded-Proto`, or in `Forwarded`. Anyone can send
these headers, so they count only on connections from the networks in PENSTOCK_TRUSTED_PROXIES. Each proxy
appends the address that it was called from: the last one that is no trusted proxy is the client's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from starlette.requests import HTTPConnection

from penstock.config import Settings
from penstock.ip_networks import IPAddress, is_in_networks, parse_networks

SETTING = "PENSTOCK_TRUSTED_PROXIES"
Headers = Iterable[tuple[bytes, bytes]]
"""Names in lower case, and values."""


@dataclass(frozen=True, slots=True)
class Hop:
    """The sender of a request to a proxy, as that proxy reports it."""

    address: str
    scheme: str


class TrustedProxies:
    """Reads the headers of trusted proxies."""

    def __init__(self, settings: Settings) -> None:
        self._networks = parse_networks(settings.trusted_proxies, SETTING)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def find_client(self, peer: str, scheme: str, headers: Headers) -> Hop:
        """Return the client of a request that arrived from `peer` over `scheme`."""
        client = Hop(_normal_form(peer), scheme)
        if not self._is_trusted(client.address):
            return client
        fields = [(name, value.decode("latin-1")) for name, value in headers]
        chains = [list(_forwarded_for(fields)), list(_forwarded(fields))]
        clients = [self._first_untrusted(client, chain) for chain in chains if chain]
        # A proxy sets one kind of header and may pass on the other from its client. Which one it sets is not
        # known, so two that differ prove nothing.
        if len(clients) == 2 and clients[0].address != clients[1].address:
            return client
        return clients[0] if clients else Hop(client.address, _forwarded_scheme(fields, 0) or scheme)

    def _first_untrusted(self, proxy: Hop, chain: list[Hop]) -> Hop:
        """Follow the chain from the broker to the client, as far as trusted proxies report it."""
        client = proxy
        for hop in reversed(chain):
            if _parse(hop.address) is None:
                break
            client = Hop(hop.address, hop.scheme or client.scheme)
            if not self._is_trusted(hop.address):
                break
        return client

    def _is_trusted(self, address: str) -> bool:
        parsed = _parse(address)
        return parsed is not None and is_in_networks(parsed, self._networks)


def client_address(connection: HTTPConnection) -> str:
    """Return the IP address of the client of a request; empty if it did not arrive over a socket."""
    return _client_of(connection).address


def is_https(connection: HTTPConnection) -> bool:
    """Whether the client uses HTTPS, to the broker or to a trusted proxy."""
    proxies: TrustedProxies = connection.app.state.trusted_proxies
    scheme = _client_of(connection).scheme if proxies else connection.scope["scheme"]
    return bool(scheme == "https")


def _client_of(connection: HTTPConnection) -> Hop:
    proxies: TrustedProxies = connection.app.state.trusted_proxies
    peer = connection.client.host if connection.client else ""
    return proxies.find_client(peer, connection.scope["scheme"], connection.scope["headers"])


def _forwarded_for(fields: list[tuple[bytes, str]]) -> Iterator[Hop]:
    """The hops of `X-Forwarded-For`, each with its scheme if `X-Forwarded-Proto` has it."""
    addresses = _values(fields, b"x-forwarded-for")
    for index, address in enumerate(addresses):
        scheme = _forwarded_scheme(fields, len(addresses) - 1 - index)
        yield Hop(_normal_form(address), scheme)


def _forwarded_scheme(fields: list[tuple[bytes, str]], hops_from_end: int) -> str:
    """The scheme so many hops away. Proxies add one each, or leave the one of the first proxy alone."""
    schemes = _values(fields, b"x-forwarded-proto")
    return schemes[max(-1 - hops_from_end, -len(schemes))].lower() if schemes else ""


def _forwarded(fields: list[tuple[bytes, str]]) -> Iterator[Hop]:
    """The hops of `Forwarded`: for=192.0.2.1;proto=https, for="[2001:db8::1]:4711"."""
    for element in _values(fields, b"forwarded"):
        pairs = (pair.partition("=") for pair in element.split(";"))
        parameters = {name.strip().lower(): value.strip().strip('"') for name, _, value in pairs}
        yield Hop(_normal_form(parameters.get("for", "")), parameters.get("proto", "").lower())


def _values(fields: list[tuple[bytes, str]], name: bytes) -> list[str]:
    """The comma-separated values of all headers with this name, in order."""
    return [value.strip() for field, text in fields if field == name for value in text.split(",")]


def _normal_form(text: str) -> str:
    """The address without a port, brackets or the IPv6 form of an IPv4 address; other text as it is."""
    address = text.strip()
    if address.startswith("["):
        address = address[1:].partition("]")[0]
    elif address.count(":") == 1:
        address = address.partition(":")[0]
    parsed = _parse(address.partition("%")[0])
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return address if parsed is None else str(parsed)


def _parse(address: str) -> IPAddress | None:
    try:
        return ip_address(address)
    except ValueError:
        return None
