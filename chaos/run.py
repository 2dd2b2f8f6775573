"""One run: a platform, its load, the faults of a schedule, and the history of it all."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx

from chaos.alert_load import AlertLoad, create_alert_rule
from chaos.calls import CALL_TIMEOUT_S, RecordedClient
from chaos.disk import SmallDisk
from chaos.final_state import READ_TIMEOUT_S, FinalState
from chaos.history import HistoryWriter
from chaos.message_load import (
    CONSUMERS_PER_GROUP,
    DRAIN_LEASE_S,
    GROUPS,
    LEASE_S,
    OUT,
    PARTITIONS,
    QUEUE,
    SHARED_PARTITION,
    Consumer,
    LoadState,
    Producer,
    queue_options,
)
from chaos.nemesis import Nemesis
from chaos.platform import NotRecovered, running_platform
from chaos.schedule import CLOCK_KINDS, Fault, build_schedule, known_kinds
from chaos.stepped_clock import find_compiler
from chaos.task_load import LIMITS, WORKERS_PER_QUEUE, TaskProducer, TaskWorker
from chaos.webhook_receiver import WebhookReceiver

SETTLE_S = 2.0
"""Load without faults, before the first and after the last one."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a run does. The same options give the same schedule."""

    seed: int
    minutes: float
    pipeline: bool
    kinds: tuple[str, ...] = ()
    """Kinds of faults to choose from; all that are possible here if empty."""
    faults: int | None = None
    """End after this many faults even if time is left."""


@dataclass(slots=True)
class RunResult:
    """The counts of a run, and what kept it from ending as it should."""

    injected: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    outcomes: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    load_s: float = 0.0


OnProgress = Callable[[float, str, HistoryWriter], None]
"""Gets the share of the run that is over, what happens now, and the history."""


async def run_chaos(
    options: RunOptions, folder: Path, home: Path, disk: SmallDisk | None, on_progress: OnProgress
) -> RunResult:
    """Run the load and the nemesis. The folder holds history, schedule and logs afterwards."""
    possible = known_kinds(
        disk=disk is not None, clocks=find_compiler() is not None, pipeline=options.pipeline
    )
    kinds = options.kinds or possible
    # A fault takes two seconds at least, so this is more than a run can use.
    schedule = build_schedule(
        options.seed, options.faults or int(options.minutes * 60), kinds, long_stops=options.minutes >= 3
    )
    (folder / "schedule.json").write_text(json.dumps([asdict(fault) for fault in schedule], indent=1) + "\n")
    history = HistoryWriter(folder / "history.jsonl")
    result = RunResult()
    receiver = WebhookReceiver(history, random.Random(f"{options.seed} receiver"))
    await receiver.start()
    try:
        async with running_platform(
            folder,
            home,
            pipeline=options.pipeline,
            clocks=any(kind in CLOCK_KINDS for kind in kinds),
            webhook_port=receiver.port,
        ) as platform:
            nemesis = Nemesis(platform, history, disk)
            with closing(nemesis):
                await _run_load(options, schedule, nemesis, receiver, history, result, on_progress)
            result.injected, result.missed = nemesis.injected, nemesis.missed
    finally:
        await receiver.close()
        result.outcomes = dict(history.outcomes)
        history.close()
    return result


async def _run_load(
    options: RunOptions,
    schedule: list[Fault],
    nemesis: Nemesis,
    receiver: WebhookReceiver,
    history: HistoryWriter,
    result: RunResult,
    on_progress: OnProgress,
) -> None:
    platform = nemesis.platform
    limits = httpx.Limits(max_connections=200, max_keepalive_connections=200)
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(
            httpx.AsyncClient(base_url=platform.url, timeout=CALL_TIMEOUT_S, limits=limits)
        )
        await configure(http, LEASE_S)
        state = LoadState()
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        for number, client in enumerate(build_clients(options.seed, http, history, state)):
            tasks.create_task(client, name=f"client-{number}")
        alerts = AlertLoad(RecordedClient("alerts", http, history), http, history)
        if options.pipeline:
            await create_alert_rule(http, platform.proxies["webhook"].port)
            watching = tasks.create_task(alerts.run(state, random.Random(f"{options.seed} alerts")))
        started = time.monotonic()
        try:
            await _inject_all(options, schedule, nemesis, history, on_progress)
        except NotRecovered as error:
            result.problems.append(str(error))
        result.load_s = time.monotonic() - started
        await asyncio.sleep(SETTLE_S)
        on_progress(1.0, "draining", history)
        state.producing = state.misbehaving = receiver.misbehaving = False
        await configure(http, DRAIN_LEASE_S)
        if options.pipeline:
            alerts.expect_calm()
            await watching
        final = FinalState(platform.postgres_url, http, history)
        left = await final.wait_until_drained()
        state.consuming = False
        if left:
            result.problems.append(f"Not drained at the end: {left}")
        on_progress(1.0, "reading what is stored", history)
        await final.record(pipeline=options.pipeline, series_from_s=nemesis.clocks_agree_at)


async def _inject_all(
    options: RunOptions,
    schedule: list[Fault],
    nemesis: Nemesis,
    history: HistoryWriter,
    on_progress: OnProgress,
) -> None:
    await asyncio.sleep(SETTLE_S)
    started = time.monotonic()
    for number, fault in enumerate(schedule):
        elapsed = time.monotonic() - started
        if elapsed > options.minutes * 60:
            return
        share = elapsed / (options.minutes * 60)
        if options.faults:
            share = max(share, number / options.faults)
        on_progress(share, fault.title, history)
        await asyncio.sleep(fault.pause_s)
        await nemesis.inject(fault)


async def configure(http: httpx.AsyncClient, lease_s: float) -> None:
    for queue in queue_options(lease_s):
        (await http.post("/api/v1/configure", json=queue, timeout=READ_TIMEOUT_S)).raise_for_status()
    for name, limit in LIMITS.items():
        path, body = f"/api/v1/run-queues/{name}/limits", {"concurrency": limit}
        response = await http.put(path, json=body, timeout=READ_TIMEOUT_S)
        response.raise_for_status()


def build_clients(
    seed: int, http: httpx.AsyncClient, history: HistoryWriter, state: LoadState
) -> list[asyncio._CoroutineLike[None]]:
    """Return the coroutines of all producers and consumers, each with a random source of its own."""

    def client(name: str) -> tuple[RecordedClient, random.Random]:
        return RecordedClient(name, http, history), random.Random(f"{seed} {name}")

    coroutines: list[asyncio._CoroutineLike[None]] = []
    partitions = [*PARTITIONS, SHARED_PARTITION, SHARED_PARTITION]
    for number, partition in enumerate(partitions):
        recorded, source = client(f"producer-{number}")
        repeats = partition != SHARED_PARTITION
        coroutines.append(Producer(recorded, state, partition, repeats=repeats).run(source))
    groups = [(QUEUE, group) for group in GROUPS] + [(OUT, "readers")]
    for queue, group in groups:
        for number in range(CONSUMERS_PER_GROUP):
            recorded, source = client(f"{group}-{number}")
            coroutines.append(Consumer(recorded, state, queue, group, source).run())
    for queue in LIMITS:
        recorded, source = client(f"{queue}-producer")
        coroutines.append(TaskProducer(recorded, state, queue).run(source))
        for number in range(WORKERS_PER_QUEUE):
            recorded, source = client(f"{queue}-worker-{number}")
            coroutines.append(TaskWorker(recorded, state, queue, source).run())
    return coroutines
