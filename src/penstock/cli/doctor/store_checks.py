"""Checks of PostgreSQL, Redis, ClickHouse and the pipeline: reachable, usable, and set up for their work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

from redis import RedisError

from penstock.cli.doctor.findings import CheckFinding, Installation, ok, problem, warning
from penstock.cli.platform_info import read_pipeline_progress
from penstock.cli.tables import format_duration
from penstock.config import Settings
from penstock.definitions import QUEUE
from penstock.durable.postgres_probe import PostgresProbe
from penstock.durable.server_facts import read_server_facts
from penstock.embedded.servers.redis_probe import RedisProbe
from penstock.embedded.servers.server_probe import ServerProbe
from penstock.embedded.supervision.platform import resolve_server_urls
from penstock.redis_clients import connect_redis, read_configs
from penstock.runqueue.connection import DURABILITY_SETTINGS, find_durability_risks
from penstock.streams.progress import find_problem
from penstock.warehouse.clickhouse_probe import ClickHouseProbe

MAX_CLOCK_DIFFERENCE_S = 2.0
OTHER_CONNECTIONS = 10
"""Connections that migrations, probes, alerts and operators need besides the pools of the brokers."""

LAG_WARNING_ENTRIES = 100_000
FRESHNESS_WARNING_S = 120.0
TIMEOUT_S = 2.0


def check_postgres(installation: Installation) -> Iterator[CheckFinding]:
    """Check version and rights, room for connections, the clock and the vacuum horizon."""
    settings = _settings_with_url(installation, "postgres_url")
    if settings is None:
        yield _stopped("postgres", "PostgreSQL")
        return
    yield from _probe("postgres", PostgresProbe(settings.postgres_url))
    facts = read_server_facts(settings.postgres_url)
    needed = settings.workers * settings.postgres_pool + OTHER_CONNECTIONS
    room = (
        f"PostgreSQL {facts.version} allows {facts.max_connections} connections; {facts.connections} are open"
    )
    if facts.max_connections < needed:
        yield warning(
            "postgres",
            f"{room}, and {settings.workers} broker processes with pools of {settings.postgres_pool} need "
            f"{needed}. Raise max_connections, or lower PENSTOCK_POSTGRES_POOL.",
        )
    else:
        yield ok("postgres", f"{room}.")
    yield from _compare_clocks("PostgreSQL", facts.now)
    for holder in facts.horizon:
        yield warning("horizon", f"{holder[:1].upper()}{holder[1:]}.")
    if not facts.horizon:
        yield ok("horizon", "Nothing has kept PostgreSQL from vacuuming for 10 minutes or longer.")


def check_redis(installation: Installation) -> Iterator[CheckFinding]:
    """Check version and rights, persistence, eviction and the clock."""
    settings = _settings_with_url(installation, "redis_url")
    if settings is None:
        yield _stopped("redis", "Redis")
        return
    yield from _probe("redis", RedisProbe(settings.redis_url))
    with connect_redis(
        settings.redis_url, decode_responses=True, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S
    ) as client:
        seconds, microseconds = client.eval("return redis.call('TIME')", 1, QUEUE.stream_keys[0])
        try:
            configs = read_configs(client, *DURABILITY_SETTINGS)
            risks = list(dict.fromkeys(risk for config in configs for risk in find_durability_risks(config)))
        except RedisError as error:
            yield ok("redis", f"Redis answers; it does not tell its settings ({error}).")
            risks = []
    for risk in risks:
        yield warning("redis", risk)
    if not risks:
        yield ok("redis", "Redis answers, keeps tasks across restarts and evicts none.")
    yield from _compare_clocks("Redis", datetime.fromtimestamp(int(seconds) + int(microseconds) / 1e6, UTC))


def check_clickhouse(installation: Installation) -> Iterator[CheckFinding]:
    settings = _settings_with_url(installation, "clickhouse_url")
    if settings is None:
        yield _stopped("clickhouse", "ClickHouse")
        return
    yield from _probe("clickhouse", ClickHouseProbe(settings.clickhouse_url))
    yield ok("clickhouse", "ClickHouse answers, and its user has the rights that the pipeline needs.")


def check_pipeline(installation: Installation) -> Iterator[CheckFinding]:
    """Say whether metrics are counted, how far behind they are, and what was lost."""
    settings = _settings_with_url(installation, "redis_url")
    if settings is None:
        yield _stopped("pipeline", "The pipeline")
        return
    progress = read_pipeline_progress(settings.redis_url)
    if reason := find_problem(progress):
        yield problem("pipeline", f"{reason} Queues work; charts and alerts have no new data.")
        return
    assert progress is not None
    lag, freshness = progress["lag"], progress["freshness"]
    assert isinstance(lag, dict)
    behind = sum(entries or 0 for entries in lag.values())
    age_s = time.time() - float(str(freshness)) if freshness else None
    newest = "no event yet" if age_s is None else f"the newest event is {format_duration(age_s)} old"
    if behind > LAG_WARNING_ENTRIES or (behind and age_s is not None and age_s > FRESHNESS_WARNING_S):
        yield warning(
            "pipeline",
            f"{behind:,} entries wait in the streams, and {newest}. `penstock pipeline status --watch` shows "
            "whether it catches up; if not, give Spark more cores.",
        )
    else:
        yield ok("pipeline", f"{behind:,} entries wait in the streams, {newest}.")
    if progress["lost"]:
        lost = f"{progress['lost']:,} entries were trimmed before they were read, in the last 31 days."
        yield warning("pipeline", f"{lost} Give Redis more memory, or Spark more cores.")


def _settings_with_url(installation: Installation, name: str) -> Settings | None:
    """Return settings with the URL of a server, or None if it is embedded and the platform is stopped."""
    if not getattr(installation.settings, name) and installation.running is None:
        return None
    return resolve_server_urls(installation.settings, name)


def _stopped(subject: str, server: str) -> CheckFinding:
    return ok(subject, f"{server} is part of the platform and stopped with it.")


def _probe(subject: str, probe: ServerProbe) -> Iterator[CheckFinding]:
    """Log in and check version and rights. Raises ServerUnusable, whose text says what to do."""
    try:
        if untested := probe.check():
            yield warning(subject, untested)
    finally:
        probe.close()


def _compare_clocks(server: str, server_time: datetime) -> Iterator[CheckFinding]:
    difference_s = abs((datetime.now(UTC) - server_time).total_seconds())
    if difference_s > MAX_CLOCK_DIFFERENCE_S:
        yield warning(
            "clock",
            f"The clocks of this machine and of {server} differ by {difference_s:.1f} s. Leases and metrics "
            "use both: synchronise them with NTP.",
        )
    else:
        yield ok("clock", f"The clock agrees with that of {server}.")
