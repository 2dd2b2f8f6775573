"""Settings: typed, read once, from an optional TOML file and `PENSTOCK_*` variables.

Variables win over the file. A key nobody knows is refused, in either place, with the nearest known one.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from penstock.errors import ConfigError

PREFIX = "PENSTOCK_"
FILE_VARIABLE = "PENSTOCK_CONFIG"


class Settings(BaseModel):
    """Everything that can be set. Each field is also the variable `PENSTOCK_<NAME>`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="address the broker listens on")
    port: int = Field(7480, ge=1, le=65535, description="port of the API and the dashboard")
    home: Path = Field(Path(".penstock"), description="data, logs and pid files of the embedded servers")
    workers: int = Field(1, ge=1, le=64, description="broker processes behind the port")
    postgres_url: str = Field("", description="your PostgreSQL; empty means embedded")
    redis_url: str = Field("", description="your Redis or Valkey; empty means embedded")
    clickhouse_url: str = Field("", description="your ClickHouse over HTTP; empty means embedded")
    clickhouse_cluster: str = Field(
        "", pattern="^[A-Za-z0-9_.-]*$", description="your ClickHouse cluster's name; empty means one server"
    )
    spark_master: str = Field("", description="your Spark master; empty means inside this machine")
    postgres_pool: int = Field(10, ge=2, le=200, description="database connections per broker process")
    metrics_enabled: bool = Field(True, description="emit metric events to Redis Streams")
    metrics_buffer: int = Field(50_000, ge=100, description="metric events held while Redis is away")
    worker_metrics: bool = Field(
        True, description="write down every minute what this broker did and how it was"
    )
    worker_metrics_days: float = Field(
        30, gt=0, le=3650, description="how long those minutes are kept, in days"
    )
    reconcile_s: float = Field(
        600, ge=1, description="how often totals and positions are compared with the log, in seconds"
    )
    trigger_ms: int = Field(1_000, ge=100, description="how often the pipeline looks for new events")
    archive: str = Field(
        "", description="directory or URL where every metric event is kept as Parquet; empty means nowhere"
    )
    run_queue_shards: int = Field(
        2, ge=1, le=256, description="shards that the run queues of environments are spread over"
    )
    visibility_ms: int = Field(
        30_000, ge=100, description="how long a dequeued task is held by default without a heartbeat"
    )
    idempotency_hours: float = Field(
        24, gt=0, le=8760, description="how long the idempotency key of a task is remembered"
    )
    lease_ms: int = Field(300_000, ge=100, description="how long a popped message is leased by default")
    chunk_hours: float = Field(
        6, gt=0, le=8760, description="age at which a chunk of the log is closed, if it is worth it"
    )
    chunk_mb: int = Field(1024, ge=1, description="size in MiB at which a chunk of the log is closed")
    maintenance_s: float = Field(
        30, ge=0.1, le=3600, description="how often retention, expiry and reclaiming look for work"
    )
    trace_days: float = Field(7, gt=0, description="how long traces of messages are kept")
    horizon_s: float = Field(
        600, ge=1, description="after how long a transaction that holds up vacuum is warned about"
    )
    max_body_bytes: int = Field(
        32 * 1024 * 1024, ge=1024, description="largest request body that is accepted, in bytes"
    )
    encryption_keys: str = Field(
        "", description="keys of encrypted queues: id:base64[,id:base64], 32 bytes each, the newest first"
    )
    load_management: bool = Field(
        True, description="spill or refuse what is more than can be done; off: everything is tried"
    )
    load_wait_s: float = Field(
        1, gt=0, le=60, description="wait for the database, in seconds, that counts as a load of 1"
    )
    load_spike_s: float = Field(
        10, ge=0, le=3600, description="how long overload is met by spilling, in seconds; then it is refused"
    )
    load_push: float = Field(0.7, gt=0, description="load from which pushes are spilled")
    load_push_depth: int = Field(
        10_000, ge=0, description="spilled pushes that may wait; past that they are refused"
    )
    load_ack: float = Field(0.8, gt=0, description="load from which acks are spilled")
    load_ack_depth: int = Field(50_000, ge=0, description="spilled acks that may wait; past that: refused")
    load_pop: float = Field(0.95, gt=0, description="load from which pops are refused")
    operation_attempts: int = Field(
        5, ge=1, le=100, description="how often an operation is tried before it is parked as failed"
    )
    failed_operation: Literal["skip", "hold"] = Field(
        "skip", description="what the lane of a failed operation does: go on without it, or wait for you"
    )
    operation_keep_s: float = Field(
        3600, gt=0, description="how long an operation that is done can be asked about, in seconds"
    )
    journal_dir: str = Field(
        "", description="where pushes are kept while PostgreSQL is away; empty means journal in home"
    )
    journal_mb: int = Field(
        256, ge=0, description="largest size of that journal in MiB; 0 means none: pushes get 503 then"
    )
    dlq_tokens: str = Field(
        "", description="tokens for dead letters: name=secret[,name=secret]; empty means callers here only"
    )
    dlq_channel_tokens: str = Field(
        "", description="X-Broker-Channel-Token by queue: queue=secret[,queue=secret]; * is every queue"
    )
    dlq_consumer_tokens: str = Field(
        "", description="X-Broker-Consumer-Token by group: group=secret[,group=secret]; * is every group"
    )
    log_level: str = Field("info", pattern="^(debug|info|warning|error)$", description="log detail")


SECRET_URLS = ("postgres_url", "redis_url", "clickhouse_url")


def load_settings(environ: Mapping[str, str] | None = None, file: Path | None = None) -> Settings:
    """The settings in force. Raises ConfigError naming each key that is unknown or does not fit."""
    env = dict(os.environ if environ is None else environ)
    chosen = env.pop(FILE_VARIABLE, None)
    path = file or (Path(chosen) if chosen else None)
    values: dict[str, Any] = _read_file(path) if path else {}
    for key, text in env.items():
        if key.startswith(PREFIX):
            name = key.removeprefix(PREFIX).lower()
            _refuse_unknown(name, key)
            values[name] = text
    try:
        settings = Settings(**values)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, e['loc']))}: {e['msg']} (got {e['input']!r})" for e in error.errors()
        )
        raise ConfigError(f"these settings do not fit: {problems}") from None
    return settings.model_copy(update={"home": settings.home.expanduser().absolute()})


def _read_file(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"the settings file {path} does not exist") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the settings file {path} is not valid TOML: {error}") from None
    for name in values:
        _refuse_unknown(name, f"{name} in {path}")
    return values


def _refuse_unknown(name: str, shown: str) -> None:
    known = list(Settings.model_fields)
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1)
    hint = (
        f": did you mean {PREFIX}{near[0].upper()}?" if near else ": `penstock config` lists the known ones"
    )
    raise ConfigError(f"unknown setting {shown}{hint}")


def as_environment(settings: Settings) -> dict[str, str]:
    """Every setting as its variable, so that a child process sees exactly these, wherever they came from."""
    values = settings.model_dump(mode="json")
    environment = {f"{PREFIX}{name.upper()}": _text(value) for name, value in values.items()}
    # The values are complete: a child must not read the file again.
    environment[FILE_VARIABLE] = ""
    return environment


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def masked(settings: Settings) -> dict[str, Any]:
    """The settings as plain values with passwords hidden, fit for printing."""
    values = settings.model_dump(mode="json")
    for name in SECRET_URLS:
        values[name] = mask_url(values[name])
    values["encryption_keys"] = ",".join(
        f"{entry.partition(':')[0]}:***" for entry in settings.encryption_keys.split(",") if entry
    )
    for name in ("dlq_tokens", "dlq_channel_tokens", "dlq_consumer_tokens"):
        entries = filter(None, values[name].split(","))
        values[name] = ",".join(f"{entry.partition('=')[0]}=***" for entry in entries)
    return values


def mask_url(url: str) -> str:
    """The address with its password hidden, wherever it stands: before the host or among the parameters."""
    url = re.sub(r"([?&]password=)[^&#]*", r"\1***", url)
    parts = urlsplit(url)
    if not parts.password:
        return url
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{host}"))
