"""The log in chunks: a new one is opened when the last is large or old, and one whose messages are no longer
kept is dropped whole.

Each call below is one bounded step in a transaction of its own. Where a chunk stands is kept in the database,
so whoever calls next goes on where the last one stopped, also after a crash. Nothing here takes a lock that
pushes, pops or acks wait for, except the drop itself, for one commit.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.durable.maintenance_lock import Session

logger = logging.getLogger(__name__)

OPEN_S = 1.0
OPEN_EVERY_S = 0.02
"""How long, and how often, it is tried to open a chunk before it is left to the next round."""
COUNT_BLOCKS = 8_192
"""Blocks of a chunk that are counted per step: 64 MiB."""
MOVE_BLOCKS = 2_048
MOVE_BYTES = 8 * 1024 * 1024
"""What is moved per step at most, give or take a block."""
KEPT_SHARE = 0.5
"""A chunk of which less than this is kept is emptied: what is moved is never more than what is gained."""
MOST_CHUNKS = 8
"""With more than these, the smallest is emptied whatever it keeps: every look goes through all of them."""

Spent = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk and where it stands; of a counted one, how much it holds and how much of that is kept."""

    chunk: int
    stage: str
    opened_at: datetime | None
    size_bytes: int
    held_bytes: int | None
    kept_bytes: int | None


@dataclass(slots=True)
class Reclaimed:
    """What became of chunks: how many were dropped, and whether there is more to do at once."""

    dropped: int = 0
    unfinished: bool = False


def after(seconds: float) -> Spent:
    """True once so much time has passed."""
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() > deadline


async def chunks(session: Session) -> list[Chunk]:
    """Every chunk, oldest first."""
    return [Chunk(**row) for row in await session.fetch("SELECT * FROM chunks_v1()")]


async def rotate(
    session: Session, chunk_bytes: int, chunk_age: timedelta, now: datetime | None = None
) -> int | None:
    """Open a new chunk if one is due; its number, or None.

    A chunk that is prepared but cannot be opened within a second, because something that began before still
    runs, is opened by a later call. Pushes never wait, and never find a chunk without its tables.
    """
    await session.fetch("SELECT prepare_chunk_v1($1, $2, $3)", chunk_bytes, chunk_age, now)
    opened: int | None = None
    late = after(OPEN_S)
    while True:
        row = await session.fetchrow(
            """SELECT (SELECT chunk FROM chunk_stages WHERE stage IN ('spare', 'announced')) AS chunk,
                      open_chunk_v1($1) AS stage""",
            now,
        )
        if row["stage"] == "open":
            opened = row["chunk"]
        if row["chunk"] is None or opened is not None or late():
            break
        if row["stage"] is None:
            await asyncio.sleep(OPEN_EVERY_S)
    await session.fetch("SELECT close_chunks_v1()")
    if opened is not None:
        logger.info("opened chunk %d of the log", opened)
    return opened


async def reclaim(session: Session, spent: Spent) -> Reclaimed:
    """Drop what can be dropped; count, and empty, what comes next, until `spent`.

    Raises Busy when a table to be dropped is in use; everything up to there is done.
    """
    done = Reclaimed()
    while not spent():
        known = await chunks(session)
        dropped = await _drop(session, known)
        done.dropped += dropped
        if not (dropped or await _empty(session, known, spent) or await _count(session, known, spent)):
            return done
    done.unfinished = True
    return done


async def _drop(session: Session, known: list[Chunk]) -> int:
    """Drop the chunks that nobody needs any more; how many."""
    dropped = 0
    for chunk in known:
        if chunk.stage != "doomed":
            continue
        table = None
        while (row := await session.fetchrow("SELECT drop_chunk_v1($1) AS dropped", chunk.chunk))["dropped"]:
            table = row["dropped"]
        if table == f"log_{chunk.chunk}":
            logger.info("dropped chunk %d of the log, %d MiB", chunk.chunk, chunk.size_bytes >> 20)
            dropped += 1
    return dropped


async def _empty(session: Session, known: list[Chunk], spent: Spent) -> bool:
    """Go on emptying a chunk, or begin with one that is worth it; whether there was one."""
    chosen = next((c for c in known if c.stage == "emptying"), None) or _worth_emptying(known)
    if chosen is None:
        return False
    stage = ""
    while stage != "doomed" and not spent():
        row = await session.fetchrow(
            "SELECT empty_chunk_v1($1, $2, $3) AS stage", chosen.chunk, MOVE_BYTES, MOVE_BLOCKS
        )
        stage = row["stage"]
    return True


def _worth_emptying(known: list[Chunk]) -> Chunk | None:
    """The chunk of which the least is kept; or, when there are too many chunks, the one that keeps least."""
    counted = [c for c in known if c.stage == "counted"]
    if not counted:
        return None
    chosen = min(counted, key=_share)
    if _share(chosen) >= KEPT_SHARE:
        if len(known) <= MOST_CHUNKS:
            return None
        chosen = min(counted, key=lambda c: c.kept_bytes or 0)
    logger.info("emptying chunk %d of the log: %d %% of it is kept", chosen.chunk, 100 * _share(chosen))
    return chosen


async def _count(session: Session, known: list[Chunk], spent: Spent) -> bool:
    """Count closed chunks; whether one was counted, or time ran out."""
    for chunk in known:
        stage: str | None = chunk.stage
        while stage == "closed":
            row = await session.fetchrow("SELECT count_chunk_v1($1, $2) AS stage", chunk.chunk, COUNT_BLOCKS)
            stage = row["stage"]
            if stage == "counted" or spent():
                return True
    return False


def _share(chunk: Chunk) -> float:
    return (chunk.kept_bytes or 0) / chunk.held_bytes if chunk.held_bytes else 0.0
