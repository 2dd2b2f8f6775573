"""The log in chunks: a new one is opened when the last is large or old, and one whose messages are no longer
kept is dropped whole.

Each call below is one bounded step in a transaction of its own. Where a chunk stands is kept in the database,
so whoever calls next goes on where the last one stopped, also after a crash. Nothing here takes a lock that
pushes, pops or acks wait for, except the drop itself, for one commit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.durable.upkeep import Session

logger = logging.getLogger(__name__)

COUNT_BLOCKS = 8_192
"""Blocks of a chunk that are counted per step: 64 MiB."""
MOVE_BLOCKS = 2_048
MOVE_BYTES = 8 * 1024 * 1024
"""What is moved per step at most, give or take a block."""
KEPT_SHARE = 0.5
"""A chunk of which less than this is kept is emptied: what is moved is never more than what is gained."""

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

    A chunk that is prepared but cannot be opened yet, because something that began before still runs, is
    opened by a later call. Pushes never wait, and never find a chunk without its tables.
    """
    await session.fetch("SELECT prepare_chunk_v1($1, $2, $3)", chunk_bytes, chunk_age, now)
    row = await session.fetchrow("SELECT open_chunk_v1($1) AS opened", now)
    opened: int | None = row["opened"]
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
        if not (
            await _drop(session, known, done) or await _empty(session, known) or await _count(session, known)
        ):
            return done
    done.unfinished = True
    return done


async def _drop(session: Session, known: list[Chunk], done: Reclaimed) -> bool:
    for chunk in known:
        if chunk.stage == "doomed":
            table = None
            while (row := await session.fetchrow("SELECT drop_chunk_v1($1) AS dropped", chunk.chunk))[
                "dropped"
            ]:
                table = row["dropped"]
            if table == f"log_{chunk.chunk}":
                logger.info("dropped chunk %d of the log, %d MiB", chunk.chunk, chunk.size_bytes >> 20)
                done.dropped += 1
                return True
    return False


async def _empty(session: Session, known: list[Chunk]) -> bool:
    """One step of emptying: of the chunk that is being emptied, else of the one worth it most."""
    chosen = next((c for c in known if c.stage == "emptying"), None)
    if chosen is None:
        counted = [c for c in known if c.held_bytes is not None and c.kept_bytes is not None]
        worth = [c for c in counted if _share(c) < KEPT_SHARE]
        if not worth:
            return False
        chosen = min(worth, key=_share)
        logger.info("emptying chunk %d of the log: %d %% of it is kept", chosen.chunk, 100 * _share(chosen))
    await session.fetchrow("SELECT empty_chunk_v1($1, $2, $3)", chosen.chunk, MOVE_BYTES, MOVE_BLOCKS)
    return True


async def _count(session: Session, known: list[Chunk]) -> bool:
    for chunk in known:
        if chunk.stage == "closed":
            row = await session.fetchrow(
                "SELECT count_chunk_v1($1, $2) AS counted", chunk.chunk, COUNT_BLOCKS
            )
            if row["counted"]:
                return True
    return False


def _share(chunk: Chunk) -> float:
    return (chunk.kept_bytes or 0) / chunk.held_bytes if chunk.held_bytes else 0.0
