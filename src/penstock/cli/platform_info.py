"""Read what the commands show: log files, the sources of settings, the pipeline's progress."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from redis import Redis, RedisError

from penstock.config import FILE_VARIABLE, PREFIX, Settings, mask_url, masked
from penstock.errors import ComponentFailed, ConfigError
from penstock.streams.positions import read_lag
from penstock.streams.progress import read_progress


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting in force; `source` is a variable, a file, or `default`."""

    name: str
    value: object
    source: str
    help: str


def list_settings_with_sources(
    settings: Settings, environ: Mapping[str, str] | None = None
) -> list[SettingRow]:
    """Return every setting, with passwords masked, and the source of its value."""
    env = os.environ if environ is None else environ
    file = env.get(FILE_VARIABLE)
    file_values = tomllib.loads(Path(file).read_text()) if file else {}

    def find_source(name: str) -> str:
        variable = f"{PREFIX}{name.upper()}"
        if variable in env:
            return variable
        return str(file) if name in file_values else "default"

    return [
        SettingRow(name, value, find_source(name), Settings.model_fields[name].description or "")
        for name, value in masked(settings).items()
    ]


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


def read_pipeline_progress(redis_url: str) -> Mapping[str, object] | None:
    """Return the pipeline's last report, with the current lag. Raises ComponentFailed without Redis."""
    try:
        progress = read_progress(redis_url)
        if progress is None:
            return None
        with Redis.from_url(redis_url, socket_timeout=2, socket_connect_timeout=2) as client:
            for report in progress["metrics"].values():
                report["lag"] = {key: read_lag(client, key) for key in report["lag"]}
                progress["lag"] |= report["lag"]
        return progress
    except RedisError as error:
        raise ComponentFailed(f"Redis at {mask_url(redis_url)} does not answer: {error}") from error
