"""Word between brokers: which queues may have something ready.

Each broker listens on a connection of its own. What it has to tell is gathered and sent after the commit,
on that same connection, at most once per `GATHER_S`; a push never waits for it. A broker that knows of no
other one tells nothing; so a newcomer is welcomed, and looks again then: from there on it is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import asyncpg

from penstock.ids import new_id

logger = logging.getLogger(__name__)

CHANNEL = "penstock_news"
GATHER_S = 0.003
PEERS_EVERY_S = 10.0
WORD_BYTES = 7_000
"""PostgreSQL takes no longer ones than 8,000."""

PARTITIONS_PER_QUEUE = 50
"""Past that, no partition is named and all who wait for one look."""

RECONNECT_S = 1.0


class News:
    """Tells other brokers, and is told. `start` and `stop` may be called twice.

    `ready(queue_id, count, partition_ids)` is called for each queue another broker names, with None for any
    partition; `missed()` when word may have been missed, after every (re)connection and welcome;
    `changed(queue_id)` when a queue's options were changed.
    """

    def __init__(
        self,
        url: str,
        *,
        ready: Callable[[int, int, Collection[int] | None], None],
        changed: Callable[[int], None],
        missed: Callable[[], None],
    ) -> None:
        self._url = url
        self._ready = ready
        self._changed = changed
        self._missed = missed
        self._me = new_id().hex[-12:]
        self._peers = False
        self._gathered: dict[int, tuple[int, set[int] | None]] = {}
        self._changes: set[int] = set()
        self._newcomers: set[str] = set()
        self._something = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="news")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def tell_ready(self, queue_id: int, count: int, partition_ids: Collection[int] | None = None) -> None:
        """Let other brokers know, soon. Costs nothing while there are none."""
        if self._peers:
            so_far, known = self._gathered.get(queue_id, (0, set()))
            named = None if known is None or partition_ids is None else known.union(partition_ids)
            if named is not None and len(named) > PARTITIONS_PER_QUEUE:
                named = None
            self._gathered[queue_id] = (so_far + count, named)
            self._something.set()

    def tell_changed(self, queue_id: int) -> None:
        self._changes.add(queue_id)
        self._something.set()

    async def _run(self) -> None:
        while True:
            try:
                await self._connected()
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError) as error:
                logger.warning("not hearing other brokers: %s", error or type(error).__name__)
            await asyncio.sleep(RECONNECT_S)

    async def _connected(self) -> None:
        connection = await asyncpg.connect(
            self._url, timeout=5, server_settings={"application_name": "penstock news"}
        )
        try:
            gone = asyncio.Event()

            def on_gone(_: object) -> None:
                gone.set()
                self._something.set()

            connection.add_termination_listener(on_gone)
            await connection.add_listener(CHANNEL, self._hear)
            await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, f"hello {self._me}")
            self._missed()
            await self._count_peers(connection)
            while not gone.is_set():
                try:
                    async with asyncio.timeout(PEERS_EVERY_S):
                        await self._something.wait()
                except TimeoutError:
                    await self._count_peers(connection)
                    continue
                await asyncio.sleep(GATHER_S)
                await self._send(connection)
        finally:
            await connection.close(timeout=2)

    async def _count_peers(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        count = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'penstock news' "
            "AND datname = current_database()"
        )
        self._peers = count > 1

    async def _send(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self._something.clear()
        gathered, self._gathered = self._gathered, {}
        changes, self._changes = self._changes, set()
        newcomers, self._newcomers = self._newcomers, set()
        told = {"ready": _entries(gathered), "changed": map(str, changes), "welcome": newcomers}
        try:
            for kind, entries in told.items():
                for words in _in_pieces(entries):
                    await connection.execute(
                        "SELECT pg_notify($1, $2)", CHANNEL, f"{kind} {self._me} {words}"
                    )
        except BaseException:
            # Told again when there is a connection; twice is better than not at all.
            for queue_id, (count, partition_ids) in gathered.items():
                self.tell_ready(queue_id, count, partition_ids)
            self._changes |= changes
            self._newcomers |= newcomers
            raise

    def _hear(self, connection: Any, pid: int, channel: str, payload: object) -> None:
        kind, sender, *rest = str(payload).split(" ")
        if sender == self._me:
            return
        self._peers = True
        if kind == "ready":
            for entry in rest[0].split(","):
                queue_id, count, *named = entry.split(":")
                partition_ids = frozenset(map(int, named[0].split("."))) if named else None
                self._ready(int(queue_id), int(count), partition_ids)
        elif kind == "changed":
            for entry in rest[0].split(","):
                self._changed(int(entry))
        elif kind == "hello":
            self._newcomers.add(sender)
            self._something.set()
        elif kind == "welcome" and self._me in rest[0].split(","):
            self._missed()


def _entries(gathered: dict[int, tuple[int, set[int] | None]]) -> Iterator[str]:
    for queue_id, (count, partition_ids) in gathered.items():
        named = ":" + ".".join(map(str, sorted(partition_ids))) if partition_ids else ""
        yield f"{queue_id}:{count}{named}"


def _in_pieces(entries: Iterable[str]) -> Iterator[str]:
    """The entries joined by commas, in as many pieces as their length needs."""
    piece: list[str] = []
    length = 0
    for entry in entries:
        if piece and length + len(entry) > WORD_BYTES:
            yield ",".join(piece)
            piece, length = [], 0
        piece.append(entry)
        length += len(entry) + 1
    if piece:
        yield ",".join(piece)
