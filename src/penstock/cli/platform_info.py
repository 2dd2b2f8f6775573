"""Read what the commands show: log files, the sources of settings, the pipeline's progress."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from penstock.cli.broker_address import BrokerAddress
from penstock.cli.options import TOKEN_VARIABLE, read_token
from penstock.config import FILE_VARIABLE, PREFIX, Settings, group_settings, mask_url, masked
from penstock.errors import ComponentFailed, ConfigError, PenstockError

if TYPE_CHECKING:
    from penstock.cli.broker_client import QuotaWarningDocument

HEALTH_TIMEOUT_S = 5.0
"""The broker responds within two seconds, also if a server hangs."""

RUNNING_PLATFORM = "running platform"


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting in force; `source` is a variable, a file, `running platform`, or `default`."""

    group: str
    name: str
    value: object
    source: str
    help: str
    ignored_source: str | None = None
    """The variable or file with another value, which the running platform does not have."""

    def matches(self, text: str) -> bool:
        """Return whether the text occurs in the setting's name, variable, group or meaning."""
        words = f"{self.name} {PREFIX}{self.name.upper()} {self.group} {self.help}"
        return text.lower() in words.lower()


def list_settings_with_sources(
    settings: Settings,
    environ: Mapping[str, str] | None = None,
    running: Mapping[str, object] | None = None,
) -> list[SettingRow]:
    """Return every setting, with passwords masked, and the source of its value.

    A setting of the running platform replaces the value that this shell has for it.
    """
    env = os.environ if environ is None else environ
    file = env.get(FILE_VARIABLE)
    file_values = tomllib.loads(Path(file).read_text()) if file else {}
    values = masked(settings)

    def find_source(name: str) -> str:
        variable = f"{PREFIX}{name.upper()}"
        if variable in env:
            return variable
        return str(file) if name in file_values else "default"

    def build_row(group: str, name: str) -> SettingRow:
        meaning = Settings.model_fields[name].description or ""
        source, value = find_source(name), values[name]
        running_value = (running or {}).get(name, value)
        if running_value == value:
            return SettingRow(group, name, value, source, meaning)
        ignored = None if source == "default" else source
        return SettingRow(group, name, running_value, RUNNING_PLATFORM, meaning, ignored)

    return [build_row(group, name) for group, names in group_settings().items() for name in names]


def find_log(home: Path, component: str) -> Path:
    """Return the log file of a component. Raises ConfigError with the known names."""
    known = sorted(path.stem for path in (home / "logs").glob("*.log"))
    if component in known:
        return home / "logs" / f"{component}.log"
    if not known:
        raise ConfigError(f"There are no logs in {home}. Start the platform first with `penstock up`.")
    similar = difflib.get_close_matches(component, known, n=1)
    hint = f"Did you mean {similar[0]}?" if similar else f"Components with a log: {', '.join(known)}."
    raise ConfigError(f"Component {component!r} has no log. {hint}")


class HealthSummary(TypedDict):
    """Whether queues and metrics work, and why not."""

    status: str
    reasons: list[str]


def read_health(address: BrokerAddress) -> HealthSummary | None:
    """Return what `/health` of the broker says, or None if the broker does not respond."""
    import httpx  # slow to import, and most commands do not need it

    try:
        tls_context = address.create_tls_context()
        body = httpx.get(f"{address.url}/health", timeout=HEALTH_TIMEOUT_S, verify=tls_context).json()
        return {"status": body["status"], "reasons": body["reasons"]}
    except (httpx.HTTPError, ValueError, KeyError):
        return None


def read_quota_warnings(address: BrokerAddress) -> list[QuotaWarningDocument]:
    """Return the quotas that are nearly used up; none if the token of the environment may not read them."""
    from penstock.cli.broker_client import BrokerClient, QuotasDocument

    token = os.environ.get(TOKEN_VARIABLE)
    try:
        with BrokerClient(address, read_token(token) if token else None) as broker:
            return broker.get("/api/v1/quotas", QuotasDocument)["warnings"]
    except PenstockError:
        return []


def read_pipeline_progress(redis_url: str) -> Mapping[str, object] | None:
    """Return the pipeline's last report, with the current lag. Raises ComponentFailed without Redis."""
    from redis import RedisError  # slow to import, and most commands do not need it

    from penstock.redis_clients import connect_redis
    from penstock.streams.positions import read_lag
    from penstock.streams.progress import read_progress

    try:
        progress = read_progress(redis_url)
        if progress is None:
            return None
        with connect_redis(redis_url, socket_timeout=2, socket_connect_timeout=2) as client:
            for report in progress["metrics"].values():
                report["lag"] = {key: read_lag(client, key) for key in report["lag"]}
                progress["lag"] |= report["lag"]
        return progress
    except RedisError as error:
        raise ComponentFailed(f"Redis at {mask_url(redis_url)} does not answer: {error}") from error
