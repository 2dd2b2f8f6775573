"""Settings: typed values from an optional TOML file and `PENSTOCK_*` variables, read once.

Variables override the file. An unknown key in either place is an error that suggests the closest known one.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from penstock.errors import ConfigError
from penstock.supported_servers import CLICKHOUSE, POSTGRES, REDIS
from penstock.validation_text import describe_refusal

PREFIX = "PENSTOCK_"
FILE_VARIABLE = "PENSTOCK_CONFIG"
CLIENT_VARIABLES = frozenset({"PENSTOCK_TOKEN", "PENSTOCK_ENVIRONMENT", "PENSTOCK_CA"})
"""Variables of clients and commands that call a broker. They are no settings: no other process gets them."""


class Settings(BaseModel):
    """All settings. Each field is also the environment variable `PENSTOCK_<NAME>`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="address that the broker listens on")
    port: int = Field(7480, ge=1, le=65535, description="port of the API and the console")
    allowed_hosts: str = Field(
        "",
        description="names in the URLs of clients: name[,name]; `*.example.com` and `*` match several. "
        "localhost, IP addresses and the machine's name are always served",
    )
    home: Path = Field(Path(".penstock"), description="data, logs and pid files of the embedded servers")
    workers: int = Field(1, ge=1, le=64, description="broker processes behind the port")
    drain_s: float = Field(
        0,
        ge=0,
        le=3600,
        description="seconds that `penstock serve` still serves after SIGTERM, with 503 from /health/ready",
    )
    log_level: str = Field(
        "info", pattern="^(debug|info|warning|error)$", description="log level of Penstock's processes"
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="format of these logs: text, or json with an object per line"
    )
    postgres_url: str = Field("", description="URL of your PostgreSQL; empty: the embedded one")
    redis_url: str = Field(
        "",
        description="URL of your Redis or Valkey, redis+cluster://host:port,host:port of its cluster, or "
        "redis+sentinel://host:port,host:port/service; empty: the embedded one",
    )
    clickhouse_url: str = Field("", description="HTTP URL of your ClickHouse; empty: the embedded one")
    clickhouse_cluster: str = Field(
        "",
        pattern="^[A-Za-z0-9_.-]*$",
        description="name of your ClickHouse cluster, with replicas, shards or both; empty: a single server",
    )
    spark_master: str = Field("", description="URL of your Spark master; empty: Spark runs on this machine")
    spark_ui_port: int = Field(0, ge=0, le=65535, description="port of the pipeline's Spark web UI; 0: no UI")
    postgres_pool: int = Field(10, ge=2, le=200, description="database connections per broker process")
    metrics_enabled: bool = Field(True, description="emit metric events to Redis Streams")
    metrics_buffer: int = Field(
        50_000, ge=100, description="metric events buffered while Redis is unreachable"
    )
    worker_metrics: bool = Field(
        True, description="store this broker's own counters and health once a minute"
    )
    worker_metrics_days: float = Field(
        30, gt=0, le=3650, description="retention of these minute rows, in days"
    )
    trigger_ms: int = Field(
        300,
        ge=100,
        description="least time between the starts of two batches of the pipeline, in milliseconds",
    )
    checkpoint_url: str = Field(
        "",
        pattern=r"^(|[a-z0-9]+://.+)$",
        description="URL of the pipeline's checkpoint in an object store (s3://bucket/prefix, gs://, az://); "
        "empty: in the home",
    )
    archive: str = Field(
        "", description="directory or URL of the Parquet archive of all metric events; empty: no archive"
    )
    run_queue_shards: int = Field(
        2,
        ge=1,
        le=256,
        description="shards that the run queues of all environments are spread over; it may be raised, and "
        "new environments use the shards that were added",
    )
    visibility_ms: int = Field(
        30_000,
        ge=100,
        description="default visibility timeout of a dequeued task without a heartbeat, in milliseconds",
    )
    idempotency_hours: float = Field(
        24, gt=0, le=8760, description="retention of a task's idempotency key, in hours"
    )
    lease_ms: int = Field(300_000, ge=100, description="default lease of a popped message, in milliseconds")
    chunk_hours: float = Field(
        6,
        gt=0,
        le=8760,
        description="age at which a chunk with a sixteenth of chunk_mb or more is closed, in hours",
    )
    chunk_mb: int = Field(1024, ge=1, description="size at which a chunk of the log is closed, in MiB")
    maintenance_s: float = Field(
        30, ge=0.1, le=3600, description="interval of retention, expiry and chunk reclamation, in seconds"
    )
    reconcile_s: float = Field(
        600, ge=1, description="interval at which totals and positions are compared with the log, in seconds"
    )
    trace_days: float = Field(
        7, gt=0, description="retention of message traces and of failed deliveries, in days"
    )
    horizon_s: float = Field(
        600,
        ge=1,
        description="age at which a transaction that holds the vacuum horizon is reported, in seconds",
    )
    encryption_keys: str = Field(
        "",
        description="keys of encrypted queues and of the secrets of alert channels: id:base64[,id:base64], "
        "32 bytes each, newest first",
    )
    max_body_bytes: int = Field(
        32 * 1024 * 1024, ge=1024, description="maximum size of a request body, in bytes"
    )
    max_response_bytes: int = Field(
        16 * 1024 * 1024,
        ge=1024,
        description="maximum payload of a pop or a page, in bytes; a larger first message comes alone",
    )
    max_connections: int = Field(
        10_000, ge=10, description="maximum number of connections of a broker process; further ones get 503"
    )
    max_waiting: int = Field(
        10_000,
        ge=1,
        description="maximum number of pops, and of dequeues, that wait at a broker process; further ones "
        "get 429",
    )
    load_management: bool = Field(
        True, description="defer or refuse requests under overload; off: execute every request"
    )
    load_wait_s: float = Field(
        1, gt=0, le=60, description="wait for the database that counts as a load of 1, in seconds"
    )
    load_spike_s: float = Field(
        10,
        ge=0,
        le=3600,
        description="seconds of overload during which requests are deferred; then they are refused",
    )
    load_push: float = Field(
        0.7, ge=0, description="load from which pushes are deferred; 0 defers every push, to test clients"
    )
    load_push_depth: int = Field(
        10_000, ge=0, description="maximum number of deferred pushes; further ones are refused"
    )
    load_ack: float = Field(0.8, gt=0, description="load from which acks are deferred")
    load_ack_depth: int = Field(
        50_000, ge=0, description="maximum number of deferred acks; further ones are refused"
    )
    load_pop: float = Field(0.95, gt=0, description="load from which pops are refused")
    operation_attempts: int = Field(
        5, ge=1, le=100, description="attempts of a deferred operation before it is parked as failed"
    )
    failed_operation: Literal["skip", "hold"] = Field(
        "skip",
        description="lane of a failed operation: skip continues without it, hold waits for an operator",
    )
    operation_keep_s: float = Field(3600, gt=0, description="retention of completed operations, in seconds")
    journal_dir: str = Field(
        "", description="directory of the journal; empty: journal/ in the home directory"
    )
    journal_mb: int = Field(
        256,
        ge=0,
        description="maximum size of the journal, in MiB; 0: no journal, so pushes get 503 in an outage",
    )
    alert_interval_s: float = Field(
        30, ge=1, le=60, description="interval at which alert rules are evaluated, in seconds"
    )
    alert_history_days: float = Field(
        365, gt=0, le=36_500, description="retention of resolved incidents and of ended silences, in days"
    )
    alert_private_networks: str = Field(
        "",
        description="private networks that alert channels may connect to: 10.0.0.0/8[,fd00::/8]; empty: only "
        "public addresses",
    )
    public_url: str = Field(
        "",
        pattern="^(https?://.*)?$",
        description="URL of the console, for links in alert notices and for logins through OpenID Connect; "
        "empty: host and port of the broker, or of the request",
    )
    scaler_host: str = Field("127.0.0.1", description="address that `penstock scaler` listens on, for KEDA")
    scaler_port: int = Field(7482, ge=0, le=65535, description="port of `penstock scaler`; 0: any free port")
    authentication: Literal["none", "required"] = Field(
        "none",
        description="none: a request without a token may do everything; required: every request needs a "
        "token or a session",
    )
    insecure: bool = Field(
        False, description="allow a host that other machines reach although authentication is none"
    )
    tls_cert: str = Field(
        "",
        description="PEM file of the broker's TLS certificate and of the intermediate ones; empty: no TLS",
    )
    tls_key: str = Field("", description="PEM file of the key of this certificate, not encrypted")
    trusted_proxies: str = Field(
        "",
        description="networks of proxies whose X-Forwarded-For, X-Forwarded-Proto and Forwarded count: "
        "10.0.0.0/8[,fd00::/8]",
    )
    metrics_token: str = Field(
        "",
        pattern="^([!-~]{16,})?$",
        description="bearer token that Prometheus sends to /metrics; empty: /metrics takes tokens with read",
    )
    session_hours: float = Field(
        12, gt=0, le=720, description="time after which a person has to log in to the console again, in hours"
    )
    console: Literal["on", "read-only"] = Field(
        "on",
        description="on: the console offers what its user may do; read-only: sessions, and browsers without "
        "authentication, only read",
    )
    audit_days: float = Field(365, gt=0, le=36_500, description="retention of the audit log, in days")
    oidc_issuer: str = Field(
        "",
        pattern="^(https?://.*)?$",
        description="issuer URL of the OpenID Connect provider that people log in with; empty: log in with a "
        "token only",
    )
    oidc_client_id: str = Field("", description="client id of this platform at the provider")
    oidc_client_secret: str = Field("", description="client secret of this platform at the provider")
    oidc_groups_claim: str = Field("groups", min_length=1, description="claim that lists a person's groups")
    oidc_roles: str = Field(
        "",
        description="roles of people: group=role[@organization/project/environment][,group=role]; roles are "
        "viewer, payload-viewer, operator and admin; the group * is every person; @* is every environment",
    )
    jwks: str = Field(
        "",
        description="URL or file of the keys that sign JWTs for the API; empty: those of oidc_issuer",
    )
    jwt_issuer: str = Field("", description="required claim iss of JWTs; empty: oidc_issuer")
    jwt_audience: str = Field("", description="required claim aud of JWTs; empty: the API takes no JWTs")


GROUP_STARTS = {
    "host": "Broker",
    "postgres_url": "Servers",
    "metrics_enabled": "Metrics and pipeline",
    "run_queue_shards": "Run queues",
    "lease_ms": "Durable queues",
    "max_body_bytes": "Limits of requests",
    "load_management": "Overload",
    "journal_dir": "Journal",
    "alert_interval_s": "Alerts",
    "scaler_host": "Autoscaling",
    "authentication": "Access",
}
"""The groups of the settings, each by its first setting: `Settings` declares the others after it."""

_VALUE_RULES = {
    "checkpoint_url": "must be a URL such as s3://bucket/prefix, or empty",
    "log_level": "must be debug, info, warning or error",
    "log_format": "must be text or json",
    "clickhouse_cluster": "must have only letters, digits and the characters _ . -",
    "failed_operation": "must be skip or hold",
    "authentication": "must be none or required",
    "console": "must be on or read-only",
    "metrics_token": "must have 16 or more letters, digits and signs, without spaces",
    "public_url": "must start with http:// or https://",
    "oidc_issuer": "must start with http:// or https://",
}
"""The rules of settings that are neither numbers nor free text, in words."""

TLS_FILES = ("tls_cert", "tls_key")
SERVERS = {"postgres_url": POSTGRES, "redis_url": REDIS, "clickhouse_url": CLICKHOUSE}
SECRET_URLS = tuple(SERVERS)
SECRETS = ("encryption_keys", "metrics_token", "oidc_client_secret")
MASK = "***"


def group_settings() -> dict[str, list[str]]:
    """Return the names of all settings by group, in the order of their declaration."""
    groups: dict[str, list[str]] = {}
    for name in Settings.model_fields:
        if name in GROUP_STARTS:
            names = groups.setdefault(GROUP_STARTS[name], [])
        names.append(name)
    return groups


def load_settings(environ: Mapping[str, str] | None = None, file: Path | None = None) -> Settings:
    """Read the settings. Raises ConfigError that names every unknown key and every invalid value.

    Raises ServerUnusable for a URL of a server that is not valid: its password might be shown later.
    """
    env = dict(os.environ if environ is None else environ)
    config_file = env.pop(FILE_VARIABLE, None)
    path = file or (Path(config_file) if config_file else None)
    values: dict[str, Any] = _read_file(path) if path else {}
    for key, text in env.items():
        if key.startswith(PREFIX) and key not in CLIENT_VARIABLES:
            name = key.removeprefix(PREFIX).lower()
            _refuse_unknown(name, key)
            values[name] = text
    try:
        settings = Settings(**values)
    except ValidationError as error:
        problems = (_describe_problem(problem, env, path) for problem in error.errors())
        raise ConfigError(" ".join(problems)) from None
    for name, server in SERVERS.items():
        if url := getattr(settings, name):
            server.check_url(url)
    tls_files = {
        name: str(Path(path).expanduser().absolute())
        for name in TLS_FILES
        if (path := getattr(settings, name))
    }
    return settings.model_copy(update={"home": settings.home.expanduser().absolute(), **tls_files})


def _read_file(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(
            f"Settings file {path} does not exist. Create it, or unset {FILE_VARIABLE}."
        ) from None
    except OSError as error:
        raise ConfigError(f"Settings file {path} cannot be read: {error.strerror}.") from None
    except ValueError as error:  # TOMLDecodeError, UnicodeDecodeError, or a number of thousands of digits
        raise ConfigError(f"Settings file {path} is not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(
            f"Settings file {path} is nested too deeply. Settings are `name = value`."
        ) from None
    for name in values:
        _refuse_unknown(name, f"{name} in {path}")
    return values


def _describe_problem(problem: Mapping[str, Any], env: Mapping[str, str], path: Path | None) -> str:
    """Say which setting is wrong, where it is set, and which values it takes."""
    name = str(problem["loc"][0])
    variable = f"{PREFIX}{name.upper()}"
    source = variable if variable in env else f"{name} in {path}"
    problem = {**problem, "input": MASK if name in SECRETS else mask_url(str(problem["input"]))}
    return describe_refusal(source, problem, _VALUE_RULES.get(name) or _describe_range(name))


def _describe_range(name: str) -> str | None:
    """Say which numbers a setting takes; None if it is not a number."""
    field = Settings.model_fields[name]
    if field.annotation not in (int, float):
        return None
    limits = {
        word: f"{limit:g}" if isinstance(limit, float) else str(limit)
        for constraint in field.metadata
        for word in ("ge", "gt", "le")
        if (limit := getattr(constraint, word, None)) is not None
    }
    kind = "a whole number" if field.annotation is int else "a number"
    if {"ge", "le"} <= limits.keys():
        return f"must be {kind} from {limits['ge']} to {limits['le']}"
    minimum = f" of {limits['ge']} or more" if "ge" in limits else f" above {limits['gt']}"
    return f"must be {kind}{minimum}" + (f" and up to {limits['le']}" if "le" in limits else "")


def _refuse_unknown(name: str, source: str) -> None:
    known = list(Settings.model_fields)
    if name in known:
        return
    close_matches = difflib.get_close_matches(name, known, n=1)
    if close_matches:
        hint = f"Did you mean {PREFIX}{close_matches[0].upper()}?"
    else:
        hint = "`penstock config` lists all settings."
    raise ConfigError(f"Unknown setting {source}. {hint}")


def as_environment(settings: Settings) -> dict[str, str]:
    """Return every setting as an environment variable, so that a child process gets exactly these values."""
    values = settings.model_dump(mode="json")
    environment = {f"{PREFIX}{name.upper()}": _text(value) for name, value in values.items()}
    # The variables are complete, so a child must not read the file again.
    environment[FILE_VARIABLE] = ""
    return environment


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def masked(settings: Settings) -> dict[str, Any]:
    """Return the settings as plain values with every secret masked."""
    values = settings.model_dump(mode="json")
    for name, value in values.items():
        if isinstance(value, str):
            values[name] = MASK if value and name in SECRETS else mask_url(value)
    # The ids of keys are no secrets, and they say which key is in use.
    entries = [entry.partition(":") for entry in settings.encryption_keys.split(",") if entry]
    values["encryption_keys"] = ",".join(
        f"{key_id}:{MASK}" if colon else MASK for key_id, colon, _ in entries
    )
    return values


def mask_url(url: str) -> str:
    """Return the URL with its passwords masked, before the host and among the parameters.

    A password with characters that a URL cannot have there is masked too; then more than it may be.
    """
    url = re.sub(r"([?&][^=&#]*(?:password|secret|token)[^=&#]*=)[^&#]*", rf"\1{MASK}", url, flags=re.I)
    scheme, separator, address = url.partition("://")
    user, colon, rest = address.partition(":")
    if not separator or not colon or re.search(r"[/?#@\[]", user):
        return url
    first_part = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in first_part:
        end = first_part.rindex("@")
    elif re.fullmatch(r"\d*(,.*)?", first_part) and "@" not in rest.partition("?")[0]:
        return url  # `user` is the host, and a port follows
    else:
        end = rest.rfind("@")
    return f"{scheme}://{user}:{MASK}" + (rest[end:] if end >= 0 else "")
