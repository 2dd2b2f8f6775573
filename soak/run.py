"""One soak: start a platform, measure its capacity, and sample it under half of that load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
import httpx
from bench.running_platform import run_platform
from redis import RedisError

from soak.load import PLATFORM_SETTINGS, NotDrained, Rates, SoakLoad
from soak.samples import Sample, Sampler

DRAIN_TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True)
class SoakOptions:
    """How long a soak takes, and how often it samples."""

    seed: int
    share: float
    """The load as a share of the capacity."""
    load_s: float
    warmup_s: float
    capacity_s: float
    sample_s: float
    min_judged_s: float
    """A shorter time after the warm-up is not judged."""


@dataclass(slots=True)
class SoakResult:
    """The samples with their times since the start of the load, the load, and what went wrong."""

    capacity: Rates = field(default_factory=lambda: Rates(0, 0))
    times_s: list[float] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    load: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def series(self) -> dict[str, tuple[list[float], list[float]]]:
        """Return times and values of every series. What did not exist yet has no value."""
        names = dict.fromkeys(name for sample in self.samples for name in sample)
        return {
            name: (
                [time_s for time_s, sample in zip(self.times_s, self.samples, strict=True) if name in sample],
                [sample[name] for sample in self.samples if name in sample],
            )
            for name in names
        }


OnProgress = Callable[[float, str], None]
"""Gets the share of the load that is over, and what happens now."""


def run_soak(options: SoakOptions, home: Path, on_progress: OnProgress) -> SoakResult:
    """Run a soak on an empty home."""
    on_progress(0.0, "starting the platform")
    with run_platform(home, PLATFORM_SETTINGS) as start:
        return asyncio.run(_run_load(options, SoakLoad(start.port, options.seed), Sampler(home), on_progress))


async def _run_load(
    options: SoakOptions, load: SoakLoad, sampler: Sampler, on_progress: OnProgress
) -> SoakResult:
    result = SoakResult()
    try:
        await load.configure()
        async with load.consuming():
            on_progress(0.0, "measuring the capacity")
            result.capacity = await load.measure_capacity(options.capacity_s)
            await load.wait_until_drained(DRAIN_TIMEOUT_S)
            await _sample_under_load(options, load, sampler, result, on_progress)
            on_progress(1.0, "draining")
            await load.wait_until_drained(DRAIN_TIMEOUT_S)
        await load.finish()
    except* (NotDrained, RuntimeError, OSError, asyncpg.PostgresError, RedisError, httpx.HTTPError) as errors:
        result.problems += [f"{type(error).__name__}: {error}" for error in flatten(errors)]
    finally:
        await sampler.close()
    result.load |= {name: float(count) for name, count in sorted(load.counts.items())}
    return result


async def _sample_under_load(
    options: SoakOptions, load: SoakLoad, sampler: Sampler, result: SoakResult, on_progress: OnProgress
) -> None:
    rates = result.capacity.scaled(options.share)
    if not rates.pushes or not rates.enqueues:
        raise RuntimeError("Nothing was finished while the capacity was measured. Use a quieter machine.")
    counts_before = load.pushes.counts.accepted, load.enqueues.counts.accepted
    started = time.monotonic()
    arrivals = asyncio.create_task(load.generate(rates, options.load_s))
    try:
        while not arrivals.done():
            result.samples.append(await sampler.take_sample())
            elapsed_s = time.monotonic() - started
            result.times_s.append(elapsed_s)
            share = min(elapsed_s / options.load_s, 1.0)
            phase = "warming up" if elapsed_s < options.warmup_s else "sampling"
            on_progress(share, f"{phase}, {load.pushes.counts.accepted:,} pushes")
            await asyncio.wait([arrivals], timeout=options.sample_s)
        await arrivals
    finally:
        arrivals.cancel()
    for name, counts, before in (
        ("push", load.pushes.counts, counts_before[0]),
        ("enqueue", load.enqueues.counts, counts_before[1]),
    ):
        result.load |= {
            f"{name} requests per second": (counts.accepted - before) / options.load_s,
            f"{name} requests": counts.accepted,
            f"{name} deferred": counts.deferred,
            f"{name} refused": counts.refused,
            f"{name} timed out": counts.timed_out,
            f"{name} given up": counts.given_up,
            f"{name} without a producer": counts.no_producer,
        }


def flatten(errors: BaseExceptionGroup[Exception]) -> list[Exception]:
    """Return the errors of a group and of the groups in it."""
    flat: list[Exception] = []
    for error in errors.exceptions:
        flat += flatten(error) if isinstance(error, BaseExceptionGroup) else [error]
    return flat
