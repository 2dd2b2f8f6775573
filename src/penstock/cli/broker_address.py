"""Find the broker that a command calls: the one of `--url`, of the settings, or of the running platform."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from penstock.config import PREFIX, Settings, mask_url
from penstock.embedded.supervision.state import PlatformState, read_state
from penstock.errors import ConfigError, InvalidRequest
from penstock.listen_address import local_url
from penstock.tls_certificate import pinned_client_context

ADDRESS_SETTINGS = ("host", "port")
CA_VARIABLE = "PENSTOCK_CA"
"""The PEM file of the CAs that sign the certificates of brokers, if they are not among the machine's CAs."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The URL of a broker, and what to do when no broker answers there."""

    url: str
    advice: str
    certificate: str = ""
    """The file of the broker's certificate if the broker runs on this machine with TLS."""

    def create_tls_context(self) -> ssl.SSLContext:
        """Return what to trust: the broker's own certificate, PENSTOCK_CA, or the CAs of this machine."""
        if self.url.startswith("http:"):
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used; loading the machine's CAs is slow
        if self.certificate:
            return pinned_client_context(Path(self.certificate))
        ca_file = os.environ.get(CA_VARIABLE)
        try:
            return ssl.create_default_context(cafile=ca_file or None)
        except OSError as error:  # an SSLError too
            raise ConfigError(f"{CA_VARIABLE}: {ca_file} has no usable certificates ({error}).") from None


def find_broker(settings: Settings, url: str | None) -> BrokerAddress:
    """Return the address in `url`, else in the settings that are set, else of the platform on the home.

    Without any of them it is the default address, where `penstock serve` listens.
    """
    if url is not None:
        return BrokerAddress(_check_url(url), "Check the address in --url.")
    running = read_state(settings.home)
    explicit = [name for name in ADDRESS_SETTINGS if name in settings.model_fields_set]
    if explicit:
        return _address_of_settings(settings, explicit, running)
    if running is not None:
        advice = f"`penstock status` shows the state of the platform on {settings.home}."
        return address_of_platform(running, advice)
    return BrokerAddress(
        local_url(settings),
        f"Penstock does not run on {settings.home}. Start it with `penstock up`, or give the address of a "
        "broker with --url.",
        settings.tls_cert,
    )


def address_of_platform(state: PlatformState, advice: str = "") -> BrokerAddress:
    """Return the address of the broker of a running platform."""
    return BrokerAddress(state.url, advice, str(state.settings.get("tls_cert", "")))


def _address_of_settings(
    settings: Settings, explicit: list[str], running: PlatformState | None
) -> BrokerAddress:
    url = local_url(settings)
    variables = " and ".join(f"{PREFIX}{name.upper()}" for name in explicit)
    if running is not None and running.url != url:
        advice = f"The platform on {settings.home} runs at {running.url}. Unset {variables} to use it."
    elif running is not None:
        advice = "`penstock status` shows the state of the platform."
    else:
        advice = f"This address comes from {variables}. Start Penstock with `penstock up`, or use --url."
    return BrokerAddress(url, advice, settings.tls_cert)


def _check_url(url: str) -> str:
    """Return the URL. Raises InvalidRequest unless it is an HTTP URL with a host and a valid port."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise InvalidRequest(
            f"The address {mask_url(url)!r} in --url is not valid. Give a URL such as http://127.0.0.1:7480."
        )
    return url
