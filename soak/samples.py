"""Samples of what a platform uses: memory, files, connections, tables, indexes, streams, and disk.

A sample is a flat map from the name of a series to its value. A name starts with its area, such as
`memory.broker` or `table.positions`.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psutil
from bench.rest_parts import SUPERVISOR, take_snapshot
from bench.running_platform import read_running_state
from redis.asyncio import Redis

from penstock.broker.journal.push_journal import journal_directory
from penstock.config import Settings
from penstock.definitions import DEFINITIONS
from penstock.embedded.supervision.platform import resolve_server_urls
from penstock.warehouse.clickhouse_client import connect as connect_clickhouse

Sample = dict[str, float]

MB = 2**20
SQL_TIMEOUT_S = 60
_TABLES = r"""
SELECT regexp_replace(s.relname, '^(log|message_keys|message_values)_\d+$', '\1') AS name,
       sum(pg_table_size(s.relid))::bigint AS table_bytes,
       sum(pg_indexes_size(s.relid))::bigint AS index_bytes,
       sum(s.n_dead_tup)::bigint AS dead_tuples
FROM pg_stat_user_tables s WHERE s.schemaname = 'penstock' GROUP BY 1
"""
"""The chunks of the log count as one table. A chunk that is dropped meanwhile has no size."""
_SESSIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
"""
_BACKLOG = """
SELECT coalesce(sum(g.depth + g.running), 0)::bigint, (SELECT count(*) FROM penstock.dead_letters)
FROM penstock.queue_gauges_v1(array(SELECT id FROM penstock.queues)) g WHERE g.group_name = ''
"""
_CLICKHOUSE = """
SELECT table, count() AS parts, sum(rows) AS rows, sum(bytes_on_disk) AS bytes
FROM system.parts WHERE active AND database = currentDatabase() GROUP BY table
"""
_LOCAL_DISK = {"checkpoint": "pipeline", "logs": "logs"}
"""Directories of a home by the name of their series."""


class Sampler:
    """Samples the platform that runs on a home."""

    def __init__(self, home: Path) -> None:
        self._home = home
        settings = Settings(home=home)
        self._settings = resolve_server_urls(settings, "postgres_url", "redis_url", "clickhouse_url")
        self._redis = Redis.from_url(self._settings.redis_url)
        self._clickhouse = connect_clickhouse(self._settings.clickhouse_url)
        self._postgres: asyncpg.Connection | None = None

    async def close(self) -> None:
        if self._postgres is not None:
            await self._postgres.close()
        await self._redis.aclose()
        self._clickhouse.close()

    async def take_sample(self) -> Sample:
        """Return the values of all series; none of processes while a component does not run."""
        processes, directories, warehouse, database, streams = await asyncio.gather(
            asyncio.to_thread(self._sample_processes),
            asyncio.to_thread(self._sample_disk),
            asyncio.to_thread(self._sample_clickhouse),
            self._sample_postgres(),
            self._sample_redis(),
        )
        return processes | directories | warehouse | database | streams

    def _sample_processes(self) -> Sample:
        state = read_running_state(self._home)
        sample: Counter[str] = Counter()
        restarts = {f"restarts.{SUPERVISOR}": float(sum(part.restarts for part in state.components))}
        try:
            snapshot = take_snapshot(state)
        except (RuntimeError, psutil.NoSuchProcess):  # the supervisor restarts it
            return restarts
        for pid, usage in snapshot.items():
            files, sockets = _count_descriptors(pid)
            sample[f"memory.{usage.part}"] += usage.own_mb  # type: ignore[assignment]
            sample[f"files.{usage.part}"] += files
            sample[f"connections.{usage.part} sockets"] += sockets
            sample[f"threads.{usage.part}"] += _count_threads(pid)
        return {**sample, **restarts}

    def _sample_disk(self) -> Sample:
        sample: Sample = {}
        directories = {name: self._home / directory for name, directory in _LOCAL_DISK.items()}
        directories["journal"] = journal_directory(self._settings)
        for name, directory in directories.items():
            sizes = list(_file_sizes(directory))
            sample[f"disk.{name} MB"] = sum(sizes) / MB
            sample[f"disk.{name} files"] = len(sizes)
        return sample

    def _sample_clickhouse(self) -> Sample:
        rows = self._clickhouse.query(_CLICKHOUSE)
        sample: Sample = {f"clickhouse.rows {row['table']}": float(row["rows"]) for row in rows}
        sample["clickhouse.parts"] = sum(row["parts"] for row in rows)
        sample["clickhouse.MB"] = sum(row["bytes"] for row in rows) / MB
        return sample

    async def _sample_postgres(self) -> Sample:
        if self._postgres is None:
            self._postgres = await asyncpg.connect(self._settings.postgres_url, command_timeout=SQL_TIMEOUT_S)
        sample: Sample = {}
        for row in await self._postgres.fetch(_TABLES):
            sample[f"table.{row['name']}"] = (row["table_bytes"] or 0) / MB
            sample[f"index.{row['name']}"] = (row["index_bytes"] or 0) / MB
            sample[f"dead tuples.{row['name']}"] = row["dead_tuples"]
        for area in ("table", "index", "dead tuples"):
            of_area = [value for name, value in sample.items() if name.startswith(f"{area}.")]
            sample[f"{area}.all"] = sum(of_area)
        sample["connections.postgres sessions"] = await self._postgres.fetchval(_SESSIONS)
        backlog = await self._postgres.fetchrow(_BACKLOG)
        assert backlog is not None
        sample["backlog.messages"], sample["backlog.dead letters"] = backlog
        return sample

    async def _sample_redis(self) -> Sample:
        info = await self._redis.info()
        sample: Sample = {
            "redis.MB": info["used_memory"] / MB,
            "redis.keys": await self._redis.dbsize(),
            "connections.redis clients": info["connected_clients"],
        }
        for definition in DEFINITIONS:
            for key in definition.stream_keys:
                sample[f"stream.{key.removeprefix('penstock:')}"] = await self._redis.xlen(key)
        return sample


def _count_descriptors(pid: int) -> tuple[int, int]:
    """Return the open files and sockets of a process; none if it ended meanwhile."""
    files = sockets = 0
    try:
        for descriptor in Path("/proc", str(pid), "fd").iterdir():
            try:
                is_socket = stat.S_ISSOCK(descriptor.stat().st_mode)
            except OSError:  # closed meanwhile, or a deleted file
                is_socket = False
            sockets += is_socket
            files += not is_socket
    except OSError:
        pass
    return files, sockets


def _count_threads(pid: int) -> int:
    try:
        return psutil.Process(pid).num_threads()
    except psutil.NoSuchProcess:
        return 0


def _file_sizes(directory: Path) -> Iterator[int]:
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                yield Path(parent, name).stat().st_size
            except FileNotFoundError:  # deleted meanwhile
                continue
