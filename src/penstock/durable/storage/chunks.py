"""Rotate and reclaim the chunks of the log.

A new chunk is opened when the last one is large or old. A chunk whose messages are no longer kept is dropped
as a whole.

Each call below is one bounded step in a transaction of its own. The stage of a chunk is stored in the
database, so the next caller continues where the last one stopped, also after a crash. Nothing here takes a
lock that pushes, pops or acks wait for, except the drop itself, for one commit.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.durable.pool import Session, fetch_all, fetch_value

logger = logging.getLogger(__name__)

OPEN_TIMEOUT_S = 1.0
OPEN_INTERVAL_S = 0.02
"""How long, and how often, to try to open a chunk before the next round continues."""
COUNT_BLOCKS = 8_192
"""Blocks of a chunk that one step counts: 64 MiB."""
MOVE_BLOCKS = 2_048
MOVE_BYTES = 8 * 1024 * 1024
"""How much one step moves, give or take a block."""
KEPT_SHARE = 0.5
"""A chunk that keeps less than this share is emptied: a move never costs more than it gains."""
MAX_CHUNKS = 8
"""With more chunks than this, the one that keeps least is emptied: every read visits all chunks."""

IsTimeOver = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A chunk and its stage, as a row of `chunks_v1`. A counted chunk has `held_bytes` and `kept_bytes`."""

    chunk: int
    stage: str
    opened_at: datetime | None
    size_bytes: int
    held_bytes: int | None
    kept_bytes: int | None


@dataclass(slots=True)
class ReclaimResult:
    """How many chunks were dropped, and whether there is more to do at once."""

    dropped: int = 0
    unfinished: bool = False


def time_budget(seconds: float) -> IsTimeOver:
    """Return a function that returns True once `seconds` have passed."""
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() > deadline


async def list_chunks(session: Session) -> list[LogChunk]:
    """Return every chunk, oldest first."""
    return await fetch_all(session, LogChunk, "SELECT * FROM chunks_v1()")


async def rotate(
    session: Session, chunk_bytes: int, chunk_age: timedelta, now: datetime | None = None
) -> int | None:
    """Open a new chunk if one is due; its number, or None.

    If a transaction that began earlier keeps a prepared chunk from opening within a second, a later call
    opens it. Pushes never wait, and never meet a chunk without its tables.
    """
    await session.fetch("SELECT prepare_chunk_v1($1, $2, $3)", chunk_bytes, chunk_age, now)
    opened: int | None = None
    is_time_over = time_budget(OPEN_TIMEOUT_S)
    while True:
        row = await session.fetchrow("SELECT * FROM open_next_chunk_v1($1)", now)
        assert row is not None
        if row["stage"] == "open":
            opened = row["chunk"]
        if row["chunk"] is None or opened is not None or is_time_over():
            break
        if row["stage"] is None:
            await asyncio.sleep(OPEN_INTERVAL_S)
    await session.fetch("SELECT close_chunks_v1()")
    if opened is not None:
        logger.info("opened chunk %d of the log", opened)
    return opened


async def reclaim(session: Session, is_time_over: IsTimeOver) -> ReclaimResult:
    """Drop chunks, and count and empty the next ones, until `is_time_over`.

    Raises ResourceBusy if a table to be dropped is in use; the steps before it are done.
    """
    result = ReclaimResult()
    while not is_time_over():
        chunks = await list_chunks(session)
        dropped = await _drop_chunks(session, chunks)
        result.dropped += dropped
        if not (
            dropped
            or await _empty_chunk(session, chunks, is_time_over)
            or await _count_chunks(session, chunks, is_time_over)
        ):
            return result
    result.unfinished = True
    return result


async def _drop_chunks(session: Session, chunks: list[LogChunk]) -> int:
    """Drop the chunks that no message needs any more; how many."""
    dropped = 0
    for chunk in chunks:
        if chunk.stage != "doomed":
            continue
        last_table = None
        while (table := await _drop_table(session, chunk)) is not None:
            last_table = table
        if last_table == f"log_{chunk.chunk}":
            logger.info("dropped chunk %d of the log, %d MiB", chunk.chunk, chunk.size_bytes >> 20)
            dropped += 1
    return dropped


async def _drop_table(session: Session, chunk: LogChunk) -> str | None:
    row = await session.fetchrow("SELECT drop_chunk_v1($1) AS dropped", chunk.chunk)
    return row["dropped"] if row else None


async def _empty_chunk(session: Session, chunks: list[LogChunk], is_time_over: IsTimeOver) -> bool:
    """Continue to empty a chunk, or start with one that is worth it; whether there was one."""
    chosen = next((c for c in chunks if c.stage == "emptying"), None) or _choose_chunk_to_empty(chunks)
    if chosen is None:
        return False
    stage = ""
    while stage != "doomed" and not is_time_over():
        stage = await fetch_value(
            session, str, "SELECT empty_chunk_v1($1, $2, $3)", chosen.chunk, MOVE_BYTES, MOVE_BLOCKS
        )
    return True


def _choose_chunk_to_empty(chunks: list[LogChunk]) -> LogChunk | None:
    """Choose the chunk that keeps the smallest share; with too many chunks, the one that keeps least."""
    counted = [c for c in chunks if c.stage == "counted"]
    if not counted:
        return None
    chosen = min(counted, key=_kept_share)
    if _kept_share(chosen) >= KEPT_SHARE:
        if len(chunks) <= MAX_CHUNKS:
            return None
        chosen = min(counted, key=lambda c: c.kept_bytes or 0)
    logger.info("emptying chunk %d of the log: %d %% of it is kept", chosen.chunk, 100 * _kept_share(chosen))
    return chosen


async def _count_chunks(session: Session, chunks: list[LogChunk], is_time_over: IsTimeOver) -> bool:
    """Count closed chunks; whether one was counted, or time ran out."""
    for chunk in chunks:
        stage: str | None = chunk.stage
        while stage == "closed":
            row = await session.fetchrow("SELECT count_chunk_v1($1, $2) AS stage", chunk.chunk, COUNT_BLOCKS)
            stage = row["stage"] if row else None
            if stage == "counted" or is_time_over():
                return True
    return False


def _kept_share(chunk: LogChunk) -> float:
    return (chunk.kept_bytes or 0) / chunk.held_bytes if chunk.held_bytes else 0.0
