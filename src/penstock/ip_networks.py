"""Lists of IP networks in settings."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

from penstock.errors import ConfigError

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network


def parse_networks(text: str, setting: str) -> list[IPNetwork]:
    """Parse `network[,network…]`, such as `10.0.0.0/8,::1`. Raises ConfigError that names the setting."""
    networks: list[IPNetwork] = []
    for entry in filter(None, (entry.strip() for entry in text.split(","))):
        try:
            networks.append(ip_network(entry))
        except ValueError as error:
            raise ConfigError(f"{setting} must be networks such as 10.0.0.0/8,fd00::/8: {error}.") from None
    return networks


def is_in_networks(address: IPAddress, networks: Iterable[IPNetwork]) -> bool:
    return any(network.version == address.version and address in network for network in networks)
