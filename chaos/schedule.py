"""The schedule of a nemesis. It follows from the seed alone, so a run can be repeated."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

LINKS = ("clients", "postgres", "valkey")
"""Connections that pass through a proxy: from clients to the broker, and from the parts to their servers."""
PIPELINE_LINKS = ("clickhouse", "webhook")
"""Those to ClickHouse, and from the senders of alerts to the receiver of their notices."""
LINK_EFFECTS = ("cut", "delayed", "dropped", "refused")

POSTGRES_CRASHES = (
    "postgres backend killed",
    "postgres killed",
    "postgres shut down at once",
    "supervisor killed",
    "disk filled",
)
"""Faults after which PostgreSQL recovers from its log. A lease that is not on disk yet may be lost."""

_BASE_KINDS = (
    "broker worker killed",
    "broker worker stopped",
    "broker killed",
    "broker restarted",
    "postgres session terminated",
    "postgres stopped",
    "postgres restarted",
    "valkey killed",
    "valkey stopped",
    *POSTGRES_CRASHES[:4],
    "supervisor restarted",
    *(f"{link} link {effect}" for link in LINKS for effect in LINK_EFFECTS),
)
DISK_KINDS = ("disk filled",)
CLOCK_PARTS = ("broker", "postgres", "valkey")
"""Parts whose wall clock is stepped, one at a time."""
CLOCK_KINDS = tuple(f"{part} clock stepped" for part in CLOCK_PARTS)
PIPELINE_KINDS = (
    "clickhouse killed",
    "clickhouse stopped",
    "pipeline driver killed",
    "pipeline driver stopped",
    "pipeline JVM killed",
    "pipeline Python worker killed",
    "alerts killed",
    "alerts stopped",
    *(f"{link} link {effect}" for link in PIPELINE_LINKS for effect in LINK_EFFECTS),
)

SHORT_STOP_S = (1.0, 6.0)
LONG_STOP_S = (5.0, 60.0)
UPGRADE_KINDS = (
    "migration run",
    "migration killed",
    *(f"{kind} during migration" for kind in ("postgres killed", "broker killed", "postgres link cut")),
    "rolling upgrade",
    *(f"{kind} during rolling upgrade" for kind in ("postgres killed", "broker killed", "valkey killed")),
)
"""A migration replaces every SQL function. A rolling upgrade adds tables and serves with two versions."""

STEP_S = (1.0, 120.0)
"""How far a clock is stepped, forward or back; when the fault ends, it is stepped the other way."""
PAIR_SHARE = 0.25
LONG_STOP_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Fault:
    """One or two faults at once: `pause_s` after the previous ones healed, for `duration_s`."""

    kinds: tuple[str, ...]
    pause_s: float
    duration_s: float
    delay_ms: float
    choice: float
    """From 0 to 1: which of several processes is the victim."""
    step_s: float

    @property
    def title(self) -> str:
        return " + ".join(self.kinds)


def known_kinds(*, disk: bool = False, clocks: bool = False, pipeline: bool = False) -> tuple[str, ...]:
    kinds = _BASE_KINDS + UPGRADE_KINDS + (DISK_KINDS if disk else ()) + (CLOCK_KINDS if clocks else ())
    return kinds + (PIPELINE_KINDS if pipeline else ())


def build_schedule(seed: int, count: int, kinds: Sequence[str], *, long_stops: bool = True) -> list[Fault]:
    """Return `count` faults. Every kind comes once before one comes twice."""
    source = random.Random(f"nemesis {seed}")
    bag: list[str] = []
    faults = []
    for _ in range(count):
        if not bag:
            bag = source.sample(list(kinds), len(kinds))
        chosen = [bag.pop()]
        if bag and source.random() < PAIR_SHARE:
            chosen.append(bag.pop())
        long = long_stops and source.random() < LONG_STOP_SHARE
        faults.append(
            Fault(
                tuple(chosen),
                round(source.uniform(0.5, 3.0), 2),
                round(source.uniform(*(LONG_STOP_S if long else SHORT_STOP_S)), 2),
                round(source.uniform(20, 300)),
                round(source.random(), 3),
                round(source.choice((1, -1)) * _between(source, *STEP_S), 2),
            )
        )
    return faults


def _between(source: random.Random, low: float, high: float) -> float:
    """Return a number between two others, with as many below 10 as above at limits of 1 and 100."""
    return math.exp(source.uniform(math.log(low), math.log(high)))
