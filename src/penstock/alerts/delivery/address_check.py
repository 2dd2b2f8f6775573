"""Decide which addresses channels may connect to.

A channel's URL comes from a user, and the sender runs inside the network: without a check, a channel could
reach the services of that network. Only public addresses are allowed, and those in
PENSTOCK_ALERT_PRIVATE_NETWORKS. The check runs on the addresses that a connection uses, after the name is
resolved: a name that leads to a public address at first and to a private one later gains nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from penstock.alerts.delivery.delivery_errors import AddressRefused, DeliveryFailed
from penstock.ip_networks import IPAddress, is_in_networks, parse_networks

Resolver = Callable[[str, int], Awaitable[list[str]]]
"""Returns the addresses of a host name. Raises OSError if it has none."""

SETTING = "PENSTOCK_ALERT_PRIVATE_NETWORKS"
RESOLVER_THREADS = 32
"""Names that are resolved at a time. A resolver that hangs for some names must not hold up the others."""
NAT64_NETWORK = ipaddress.IPv6Network("64:ff9b::/96")
"""IPv6 addresses that a gateway translates to the IPv4 address in their last 32 bits."""

_resolver_threads = ThreadPoolExecutor(RESOLVER_THREADS, thread_name_prefix="resolve alert channel")


async def resolve_with_system(host: str, port: int) -> list[str]:
    """Resolve a name the way the system does, hosts file included."""
    results = await asyncio.get_running_loop().run_in_executor(
        _resolver_threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    )
    return list(dict.fromkeys(str(address[0]) for *_, address in results))


class AddressCheck:
    """Resolves names to addresses that channels may connect to."""

    def __init__(self, private_networks: str = "", resolver: Resolver = resolve_with_system) -> None:
        self._allowed_networks = parse_networks(private_networks, SETTING)
        self._resolver = resolver

    async def resolve(self, host: str, port: int) -> list[str]:
        """Return the allowed addresses of a host. Raises AddressRefused if it has other addresses only."""
        try:
            addresses = await self._resolver(host, port)
        except OSError as error:
            raise DeliveryFailed(
                f"The name {host!r} cannot be resolved: {error.strerror or error}."
            ) from None
        allowed = [address for address in addresses if self.is_allowed(address)]
        if not allowed:
            raise AddressRefused(
                f"{host!r} has the private address {', '.join(addresses)}. Channels may only connect to "
                f"public addresses and to the networks in {SETTING}."
            )
        return allowed

    def is_allowed(self, text: str) -> bool:
        """Whether channels may connect to this address."""
        address = ipaddress.ip_address(text.partition("%")[0])
        if is_in_networks(address, self._allowed_networks):
            return True
        embedded = _embedded_ipv4(address)
        if embedded is not None:
            return self.is_allowed(str(embedded))
        return address.is_global and not address.is_multicast


def _embedded_ipv4(address: IPAddress) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that packets to this IPv6 address end at, if there is one."""
    if not isinstance(address, ipaddress.IPv6Address):
        return None
    if address in NAT64_NETWORK:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)
