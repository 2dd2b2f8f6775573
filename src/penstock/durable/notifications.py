"""Notifications between brokers: which queues may have messages ready, and which have changed.

Each broker listens on a connection of its own. Notifications are collected and sent after the commit, on that
same connection, at most once per `COLLECT_S`; a push never waits for them. A broker that knows no other one
sends nothing. A broker that joins says hello, and those that are there welcome it; it resyncs then, because
earlier notifications were not sent to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator

import asyncpg

from penstock.background import BackgroundTask
from penstock.durable.pool import SCHEMA
from penstock.durable.primary import PrimaryConnection, connect_to_primary, is_read_only
from penstock.ids import new_id

logger = logging.getLogger(__name__)

CHANNEL = "penstock_news"
APPLICATION_NAME = "penstock news"
COLLECT_S = 0.003
COUNT_PEERS_INTERVAL_S = 10.0
MAX_PAYLOAD_BYTES = 7_000
"""PostgreSQL accepts payloads of less than 8,000 bytes."""

MAX_PARTITIONS_PER_QUEUE = 50
"""With more partitions of one queue none is named, and every pop that waits for one of them retries."""

RECONNECT_S = 1.0

CONNECTION_ERRORS = (
    *(OSError, TimeoutError),
    *(asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError),
)
"""What ends a connection. asyncpg raises InternalClientError if the connection ends within a statement."""


class NotificationBus(BackgroundTask):
    """Sends notifications to the other brokers and receives theirs.

    `on_ready(queue_id, count, partition_ids)` is called for each queue that another broker names; None stands
    for any partition. `on_changed(queue_id)` is called when the options of a queue were changed. `resync()`
    is called when notifications may have been missed: after every (re)connection and every welcome.
    `on_access_changed()` is called when tokens or environments changed, on this broker too.
    """

    task_name = "notifications"

    def __init__(
        self,
        url: str,
        *,
        on_ready: Callable[[int, int, Collection[int] | None], None],
        on_changed: Callable[[int], None],
        resync: Callable[[], None],
    ) -> None:
        self._url = url
        self._on_ready = on_ready
        self._on_changed = on_changed
        self._resync = resync
        self.on_access_changed: Callable[[], None] = lambda: None
        self._broker_id = new_id().hex[-12:]
        self.has_peers = False
        """Whether other brokers listen."""
        self._ready_queues: dict[int, tuple[int, set[int] | None]] = {}
        self._changed_queues: set[int] = set()
        self._newcomers: set[str] = set()
        self._has_work = asyncio.Event()

    def publish(self, queue_id: int, count: int, partition_ids: Collection[int] | None = None) -> None:
        """Notify the other brokers soon that messages are ready. Costs nothing while there are none."""
        if self.has_peers:
            total, partitions = self._ready_queues.get(queue_id, (0, set()))
            merged = None if partitions is None or partition_ids is None else partitions.union(partition_ids)
            if merged is not None and len(merged) > MAX_PARTITIONS_PER_QUEUE:
                merged = None
            self._ready_queues[queue_id] = (total + count, merged)
            self._has_work.set()

    def publish_change(self, queue_id: int) -> None:
        """Notify the other brokers soon that a queue was changed or deleted."""
        self._changed_queues.add(queue_id)
        self._has_work.set()

    async def _run(self) -> None:
        while not self._is_stopping:  # closing the connection may turn a cancellation into a TimeoutError
            try:
                await self._run_connection()
            except CONNECTION_ERRORS as error:
                logger.warning("no notifications from other brokers: %s", error or type(error).__name__)
            await asyncio.sleep(RECONNECT_S)

    async def _run_connection(self) -> None:
        connection = await connect_to_primary(
            self._url,
            timeout=5,
            server_settings={"application_name": APPLICATION_NAME, "search_path": SCHEMA},
        )
        try:
            terminated = asyncio.Event()

            def on_termination(_: object) -> None:
                terminated.set()
                self._has_work.set()

            connection.add_termination_listener(on_termination)
            await connection.add_listener(CHANNEL, self.on_message)
            await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, f"hello {self._broker_id}")
            self._resync()
            await self._count_peers(connection)
            while not terminated.is_set():
                try:
                    async with asyncio.timeout(COUNT_PEERS_INTERVAL_S):
                        await self._has_work.wait()
                except TimeoutError:
                    await self._count_peers(connection)
                    continue
                await asyncio.sleep(COLLECT_S)
                await self._send(connection)
        finally:
            await connection.close(timeout=2)

    async def _count_peers(self, connection: PrimaryConnection) -> None:
        brokers = await connection.fetchval("SELECT * FROM count_listening_brokers_v1($1)", APPLICATION_NAME)
        self.has_peers = brokers > 1
        if is_read_only(connection):
            raise ConnectionError("the server is no primary any more")

    async def _send(self, connection: PrimaryConnection) -> None:
        self._has_work.clear()
        ready_queues, self._ready_queues = self._ready_queues, {}
        changed_queues, self._changed_queues = self._changed_queues, set()
        newcomers, self._newcomers = self._newcomers, set()
        entries_by_kind: dict[str, Iterable[str]] = {
            "ready": _ready_entries(ready_queues),
            "changed": map(str, changed_queues),
            "welcome": newcomers,
        }
        try:
            for kind, entries in entries_by_kind.items():
                for payload in _join_entries(entries):
                    await connection.execute(
                        "SELECT pg_notify($1, $2)", CHANNEL, f"{kind} {self._broker_id} {payload}"
                    )
        except BaseException:
            # Send everything again on the next connection: twice is better than not at all.
            for queue_id, (count, partition_ids) in ready_queues.items():
                self.publish(queue_id, count, partition_ids)
            self._changed_queues |= changed_queues
            self._newcomers |= newcomers
            raise

    def on_message(self, connection: object, pid: int, channel: str, payload: object) -> None:
        """Handle one notification. The payload is `kind sender entry,entry,...`."""
        kind, sender, *rest = str(payload).split(" ")
        if kind == "access":  # from raise_access_version_v1, not from a broker
            self.on_access_changed()
            return
        if sender == self._broker_id:
            return
        self.has_peers = True
        if kind == "ready":
            for entry in rest[0].split(","):
                queue_id, count, *partitions = entry.split(":")
                partition_ids = frozenset(map(int, partitions[0].split("."))) if partitions else None
                self._on_ready(int(queue_id), int(count), partition_ids)
        elif kind == "changed":
            for entry in rest[0].split(","):
                self._on_changed(int(entry))
        elif kind == "hello":
            self._newcomers.add(sender)
            self._has_work.set()
        elif kind == "welcome" and self._broker_id in rest[0].split(","):
            self._resync()


def _ready_entries(ready_queues: dict[int, tuple[int, set[int] | None]]) -> Iterator[str]:
    for queue_id, (count, partition_ids) in ready_queues.items():
        partitions = ":" + ".".join(map(str, sorted(partition_ids))) if partition_ids else ""
        yield f"{queue_id}:{count}{partitions}"


def _join_entries(entries: Iterable[str]) -> Iterator[str]:
    """Join entries with commas into payloads of at most MAX_PAYLOAD_BYTES."""
    pending: list[str] = []
    length = 0
    for entry in entries:
        if pending and length + len(entry) > MAX_PAYLOAD_BYTES:
            yield ",".join(pending)
            pending, length = [], 0
        pending.append(entry)
        length += len(entry) + 1
    if pending:
        yield ",".join(pending)
