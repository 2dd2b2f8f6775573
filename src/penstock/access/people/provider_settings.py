"""Check the settings of the identity provider before a broker starts. This module imports little."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from penstock.access.people.roles import RoleMapping
from penstock.config import PREFIX, Settings
from penstock.errors import ConfigError

_PROVIDER_SETTINGS = (
    "oidc_issuer",
    "oidc_client_id",
    "oidc_client_secret",
    "jwks",
    "jwt_issuer",
    "jwt_audience",
)


def check_provider_settings(settings: Settings) -> None:
    """Raise ConfigError if the settings of the identity provider are not complete and consistent."""
    RoleMapping(settings.oidc_roles)
    configured = [name for name in _PROVIDER_SETTINGS if getattr(settings, name)]
    if not configured:
        return
    if settings.authentication == "none":
        raise ConfigError(
            f"{_variable(configured[0])} has no effect while {_variable('authentication')} is none: "
            f"a request without a login may do everything. Set {_variable('authentication')}=required."
        )
    if settings.oidc_issuer:
        require_protected_url(settings.oidc_issuer, _variable("oidc_issuer"))
        _require(settings, "oidc_issuer", ("oidc_client_id", "oidc_client_secret"))
    else:
        _refuse_alone(settings, ("oidc_client_id", "oidc_client_secret"), "oidc_issuer")
    if settings.jwt_audience and not settings.oidc_issuer:
        _require(settings, "jwt_audience", ("jwks", "jwt_issuer"))
    _refuse_alone(settings, ("jwks", "jwt_issuer"), "jwt_audience")
    if "://" in settings.jwks:
        require_protected_url(settings.jwks, _variable("jwks"))
    elif settings.jwks and not Path(settings.jwks).is_file():
        raise ConfigError(f"{_variable('jwks')}: the file {settings.jwks} does not exist.")
    _require(settings, configured[0], ("oidc_roles",))


def _require(settings: Settings, name: str, required: tuple[str, ...]) -> None:
    missing = [_variable(other) for other in required if not getattr(settings, other)]
    if missing:
        raise ConfigError(f"{_variable(name)} also needs {' and '.join(missing)}.")


def _refuse_alone(settings: Settings, names: tuple[str, ...], required: str) -> None:
    for name in names:
        if getattr(settings, name) and not getattr(settings, required):
            raise ConfigError(f"{_variable(name)} also needs {_variable(required)}.")


def _variable(name: str) -> str:
    return f"{PREFIX}{name.upper()}"


def require_protected_url(url: str, source: str) -> str:
    """Return a URL whose traffic cannot be read or changed on the way: https, or this machine."""
    parts = urlsplit(url)
    if not parts.hostname or not (
        parts.scheme == "https" or (parts.scheme == "http" and _is_local(parts.hostname))
    ):
        raise ConfigError(f"{source} must be an https:// URL, not {url!r}. http:// is for localhost alone.")
    return url


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
