"""Word between brokers: which queues may have something ready.

Each broker listens on a connection of its own. What it has to tell is gathered and sent after the commit,
on that same connection, at most once per `GATHER_S`; a push never waits for it. A broker that knows of no
other one tells nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import asyncpg

from penstock.ids import new_id

logger = logging.getLogger(__name__)

CHANNEL = "penstock_news"
GATHER_S = 0.003
PEERS_EVERY_S = 10.0
QUEUES_PER_WORD = 300
RECONNECT_S = 1.0


class News:
    """Tells other brokers, and is told. `start` and `stop` may be called twice.

    `ready(queue_id, count)` is called for each queue another broker names; `missed()` when word may have
    been missed, after every (re)connection; `changed(queue_id)` when a queue's options were changed.
    """

    def __init__(
        self,
        url: str,
        *,
        ready: Callable[[int, int], None],
        changed: Callable[[int], None],
        missed: Callable[[], None],
    ) -> None:
        self._url = url
        self._ready = ready
        self._changed = changed
        self._missed = missed
        self._me = new_id().hex[-12:]
        self._peers = False
        self._gathered: dict[int, int] = {}
        self._changes: set[int] = set()
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

    def tell_ready(self, queue_id: int, count: int) -> None:
        """Let other brokers know, soon. Costs nothing while there are none."""
        if self._peers:
            self._gathered[queue_id] = self._gathered.get(queue_id, 0) + count
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
                    await asyncio.wait_for(self._something.wait(), PEERS_EVERY_S)
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
        ready = [f"{queue_id}:{count}" for queue_id, count in gathered.items()]
        changed = [str(queue_id) for queue_id in changes]
        for kind, entries in (("ready", ready), ("changed", changed)):
            for start in range(0, len(entries), QUEUES_PER_WORD):
                word = f"{kind} {self._me} {','.join(entries[start : start + QUEUES_PER_WORD])}"
                await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, word)

    def _hear(self, connection: Any, pid: int, channel: str, payload: object) -> None:
        kind, sender, *rest = str(payload).split(" ")
        if sender == self._me:
            return
        self._peers = True
        if kind == "ready":
            for entry in rest[0].split(","):
                queue_id, _, count = entry.partition(":")
                self._ready(int(queue_id), int(count))
        elif kind == "changed":
            for entry in rest[0].split(","):
                self._changed(int(entry))
