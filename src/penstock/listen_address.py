"""Decide whether the broker may listen on its address: without authentication, only on loopback."""

from __future__ import annotations

import socket
from ipaddress import ip_address

from penstock.config import Settings
from penstock.errors import ConfigError


def check_listen_address(settings: Settings) -> str | None:
    """Return a warning for the log, or None. Raises ConfigError if the broker must not listen there."""
    if settings.authentication == "required" or is_loopback(settings.host):
        return None
    exposure = f"PENSTOCK_HOST={settings.host} lets other machines use the broker without authentication"
    if settings.insecure:
        return f"{exposure}: each of them can read, change and delete everything (PENSTOCK_INSECURE is set)."
    raise ConfigError(
        f"{exposure}. Set PENSTOCK_AUTHENTICATION=required, listen on 127.0.0.1, or set PENSTOCK_INSECURE=1 "
        "if every machine that reaches this address may do everything."
    )


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine reach a server that listens on this address or name."""
    if not host:
        return False  # a server without an address listens on all of them
    try:
        addresses = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ip_address(address.partition("%")[0]).is_loopback for address in addresses)
