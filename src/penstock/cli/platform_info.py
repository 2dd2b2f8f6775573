"""What the commands show, gathered: log files, the origin of settings, the pipeline's progress."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import RedisError

from penstock.config import FILE_VARIABLE, PREFIX, Settings, mask_url, masked
from penstock.errors import ComponentFailed, ConfigError
from penstock.streams.progress import read_progress


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting as it is in force; `source` is a variable, a file, or `default`."""

    name: str
    value: Any
    source: str
    help: str


def settings_with_sources(settings: Settings, environ: Mapping[str, str] | None = None) -> list[SettingRow]:
    """Every setting, passwords hidden, with the place that decided its value."""
    env = os.environ if environ is None else environ
    file = env.get(FILE_VARIABLE)
    in_file = tomllib.loads(Path(file).read_text()) if file else {}

    def source(name: str) -> str:
        variable = f"{PREFIX}{name.upper()}"
        if variable in env:
            return variable
        return str(file) if name in in_file else "default"

    return [
        SettingRow(name, value, source(name), Settings.model_fields[name].description or "")
        for name, value in masked(settings).items()
    ]


def log_of(home: Path, part: str) -> Path:
    """The log file of a part. Raises ConfigError naming those there are."""
    log = home / "logs" / f"{part}.log"
    known = sorted(path.stem for path in (home / "logs").glob("*.log"))
    if part in known:
        return log
    if not known:
        raise ConfigError(f"there are no logs in {home}: nothing was started there yet")
    near = difflib.get_close_matches(part, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there is {', '.join(known)}"
    raise ConfigError(f"there is no log of {part!r}: {hint}")


def pipeline_progress(redis_url: str) -> dict[str, Any] | None:
    """The pipeline's last report. Raises ComponentFailed when Redis does not answer."""
    try:
        return read_progress(redis_url)
    except RedisError as error:
        raise ComponentFailed(f"Redis at {mask_url(redis_url)} does not answer: {error}") from error
