"""Draining and resetting: what an operator does to a pipeline besides running it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from redis import Redis
from redis.exceptions import RedisError

from penstock.config import Settings, mask_url
from penstock.definitions import DEFINITIONS, MetricDefinition
from penstock.errors import ComponentFailed
from penstock.pipeline.checkpoint import CheckpointInUse, CheckpointLock, checkpoint_of, move_aside
from penstock.streams.drain_target import Goal
from penstock.streams.positions import rewind
from penstock.streams.progress import is_alive, read_progress

LOOK_S = 0.5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Drained:
    """What a drain did; `by` is `drain` itself or the `running` pipeline."""

    complete: bool
    entries: int
    left: int
    by: str
    seconds: float


Tell = Callable[[int, int, str], None]
"""Called now and then with how many entries were to do, how many are left, and who works on them."""


def drain(settings: Settings, tell: Tell, definitions: Iterable[MetricDefinition] = DEFINITIONS) -> Drained:
    """Return once everything is counted that is in the streams now.

    If a pipeline runs, here or on another machine, this waits until that one has got there; else, or when it
    ends, the work is done here.
    """
    started, chosen = time.monotonic(), tuple(definitions)
    keys = [key for definition in chosen for key in definition.stream_keys]
    with _redis(settings) as redis:
        goal = _asking(settings, lambda: Goal.of(redis, keys))
        total = _asking(settings, lambda: goal.left(redis))
        by = "running"
        while not _asking(settings, lambda: goal.is_reached(redis)):
            try:
                lock = CheckpointLock(checkpoint_of(settings))
            except CheckpointInUse:
                lock = None
            if lock is None or runs_elsewhere(settings):
                if lock is not None:
                    lock.close()
                tell(total, _asking(settings, lambda: goal.left(redis)), by)
                time.sleep(LOOK_S)
                continue
            with lock:
                from penstock.pipeline import job

                by = "drain"
                tell(total, _asking(settings, lambda: goal.left(redis)), by)
                if not job.drain(settings, goal, lambda left: tell(total, left, "drain"), chosen):
                    break
        left = _asking(settings, lambda: goal.left(redis))
        complete = _asking(settings, lambda: goal.is_reached(redis))
    tell(total, left, by)
    return Drained(complete, total - left, left, by if total else "nobody", time.monotonic() - started)


def reset(
    settings: Settings,
    from_beginning: bool = False,
    definitions: Iterable[MetricDefinition] = DEFINITIONS,
) -> Path | None:
    """Give up the checkpoint; returns where its files were moved to, None if there was none.

    The next start goes on where the consumer group stands, or, with `from_beginning`, at the oldest entry
    that the streams still hold. Raises CheckpointInUse while a pipeline runs, having changed nothing.
    """
    with CheckpointLock(checkpoint_of(settings)):
        if runs_elsewhere(settings):
            raise CheckpointInUse("a pipeline on another machine reads these streams: stop it first")
        if from_beginning:
            with _redis(settings) as redis:
                for definition in definitions:
                    for key in definition.stream_keys:
                        _asking(settings, lambda key=key: rewind(redis, key))  # type: ignore[misc]
        return move_aside(checkpoint_of(settings))


def runs_elsewhere(settings: Settings) -> bool:
    """Whether a pipeline on another machine reported lately. (One on this machine holds the lock.)"""
    try:
        progress = read_progress(settings.redis_url)
    except RedisError:
        return False  # it cannot do anything either
    return is_alive(progress) and (progress or {}).get("host") != os.uname().nodename


def _redis(settings: Settings) -> Redis:
    return Redis.from_url(settings.redis_url, socket_timeout=5, socket_connect_timeout=2)


def _asking(settings: Settings, ask: Callable[[], T]) -> T:
    try:
        return ask()
    except RedisError as error:
        raise ComponentFailed(f"Redis at {mask_url(settings.redis_url)} does not answer: {error}") from error
