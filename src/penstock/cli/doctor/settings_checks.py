"""Checks of the settings: unknown names, contradictions, TLS certificates, who can reach the broker."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from penstock.cli.doctor.findings import CheckFinding, Installation, ok, problem, warning
from penstock.cli.platform_info import list_settings_with_sources
from penstock.config import CLIENT_VARIABLES, PREFIX, Settings, load_settings
from penstock.errors import ConfigError, PenstockError
from penstock.listen_address import check_listen_address, is_loopback
from penstock.tls_certificate import read_certificate

CERTIFICATE_WARNING = timedelta(days=30)
SUBJECT = "settings"


def load_checked_settings(environ: Mapping[str, str] | None = None) -> tuple[Settings, list[CheckFinding]]:
    """Return the settings, and a problem for each variable that is refused. Those variables are left out."""
    variables = dict(os.environ if environ is None else environ)
    findings: list[CheckFinding] = []
    while True:
        try:
            return load_settings(variables), findings
        except PenstockError as error:
            findings.append(problem(SUBJECT, error.detail))
            refused = [name for name in variables if name in error.detail and _is_setting(name)]
            if not refused:  # a value in the settings file
                return Settings(), findings
            for name in refused:
                del variables[name]


def _is_setting(name: str) -> bool:
    return name.startswith(PREFIX) and name not in CLIENT_VARIABLES


def check_contradictions(installation: Installation) -> Iterator[CheckFinding]:
    """Report settings that exclude each other, and those that the running platform does not have."""
    from penstock.access.people.provider_settings import check_provider_settings

    check_provider_settings(installation.settings)
    running = installation.running.settings if installation.running else None
    rows = list_settings_with_sources(installation.settings, running=running)
    for row in rows:
        if row.ignored_source:
            yield warning(
                SUBJECT,
                f"{row.ignored_source} has another value for {row.name} than the running platform. "
                "Restart the platform to apply it, or unset it.",
            )
    changed = sum(row.source != "default" for row in rows)
    yield ok(SUBJECT, f"{changed} settings differ from their defaults. `penstock config` lists them.")


def check_exposure(installation: Installation) -> Iterator[CheckFinding]:
    """Say which machines reach the broker, and whether they need a token."""
    settings = installation.settings
    if exposure := check_listen_address(settings):
        yield warning("access", exposure)
    elif settings.authentication == "none":
        yield ok("access", "Only this machine reaches the broker; every program on it may do everything.")
    else:
        reach = "Only this machine reaches" if is_loopback(settings.host) else "Other machines reach"
        yield ok("access", f"{reach} the broker; every request needs a token or a login.")


def check_certificate(installation: Installation) -> Iterator[CheckFinding]:
    """Say when the certificate of the broker expires."""
    path = installation.settings.tls_cert
    if not path:
        return
    try:
        expires = read_certificate(Path(path)).not_valid_after_utc
    except ConfigError as error:
        yield problem("certificate", error.detail)
        return
    left = expires - datetime.now(UTC)
    if left < timedelta():
        yield problem("certificate", f"The certificate in {path} expired on {expires:%Y-%m-%d}. Renew it.")
    elif left < CERTIFICATE_WARNING:
        text = f"The certificate in {path} expires in {left.days} days, on {expires:%Y-%m-%d}. Renew it."
        yield warning("certificate", text)
    else:
        yield ok("certificate", f"The certificate is valid until {expires:%Y-%m-%d}.")
