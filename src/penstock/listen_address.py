"""Check the address that the broker listens on, and the certificate it serves there.

Without authentication it listens on loopback only.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address

from penstock.config import Settings
from penstock.errors import ConfigError
from penstock.ip_networks import parse_networks
from penstock.tls_certificate import TlsFiles

_PLAIN_TEXT_WARNING = (
    "With PENSTOCK_HOST={host} and without TLS, tokens and messages cross the network as plain text. Set "
    "PENSTOCK_TLS_CERT and PENSTOCK_TLS_KEY, or let only a proxy with TLS reach this address."
)


def check_listen_address(settings: Settings) -> str | None:
    """Return a warning for the log, or None. Raises ConfigError if the broker must not or cannot listen."""
    tls_files = TlsFiles.from_settings(settings)
    if tls_files is not None:
        tls_files.create_server_context()
    has_proxies = bool(parse_networks(settings.trusted_proxies, "PENSTOCK_TRUSTED_PROXIES"))
    is_local = is_loopback(settings.host)
    if settings.authentication == "required":
        is_encrypted = is_local or has_proxies or tls_files is not None
        return None if is_encrypted else _PLAIN_TEXT_WARNING.format(host=settings.host)
    if is_local and not has_proxies:
        return None
    cause = "PENSTOCK_TRUSTED_PROXIES" if is_local else f"PENSTOCK_HOST={settings.host}"
    exposure = f"{cause} lets other machines use the broker without authentication"
    if settings.insecure:
        return f"{exposure}: each of them can read, change and delete everything (PENSTOCK_INSECURE is set)."
    remedy = "unset it" if is_local else "listen on 127.0.0.1"
    raise ConfigError(
        f"{exposure}. Set PENSTOCK_AUTHENTICATION=required, {remedy}, or set PENSTOCK_INSECURE=1 if every "
        "machine that reaches the broker may do everything."
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


def local_url(settings: Settings) -> str:
    """Return the URL by which programs on this machine reach the broker."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(settings.host, settings.host)
    return url_of_host(settings, host)


def url_of_host(settings: Settings, host: str) -> str:
    """Return the broker's URL with this name or address of its machine."""
    scheme = "https" if settings.tls_cert else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.port}"
