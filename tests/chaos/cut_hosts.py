"""Cut hosts off while clients use their brokers through HAProxy, and record what happens.

First one host loses both networks, then another one only that of its servers. `Observations` has what the
tests compare, and the history of all calls.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx
from chaos.calls import CALL_TIMEOUT_S, RecordedClient
from chaos.final_state import FinalState
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
)
from chaos.run import configure
from chaos.task_load import LIMITS, TaskProducer, TaskWorker
from redis import Redis

from penstock.definitions import QUEUE as QUEUE_METRIC
from penstock.streams.positions import CONSUMER_GROUP
from tests.chaos.host_cluster import HostCluster
from tests.chaos.load_balancer import CONNECTED, PUSHES
from tests.chaos.network_hosts import LINKS, NetworkHost
from tests.deadlines import deadline_s
from tests.integration.alerts.delivery.http_receiver import receive_http
from tests.waiting import wait_until_async

CUT_S = float(os.environ.get("TEST_HOST_CUT_S", "12"))
"""How long each host is cut off. The alert process on another host needs about ten seconds to notice it."""

SEED = 4711
TASK_WORKERS = 2
WAKE_QUEUE, LOCAL_QUEUE = "wake", "local"
WAKE_TIMEOUT_MS = 3_000
LOCAL_PUSHES = 20
STALE_S = 3_600
NOTICE_TIMEOUT_S = 30
LOCK_HOLDER = """SELECT host(client_addr) FROM pg_stat_activity a JOIN pg_locks l USING (pid)
    WHERE l.locktype = 'advisory' AND l.granted AND a.application_name = 'penstock alerts'"""
COVERED = """SELECT hostname, min(covered_from) AS covered_from, max(covered_to) AS covered_to,
    sum(extract(epoch FROM covered_to - covered_from))::float AS covered_s,
    sum(push_messages)::bigint AS push_messages FROM penstock.worker_metrics GROUP BY hostname"""
LOCAL_PROGRAM = """
import json, sys, time, urllib.error, urllib.request

def call(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(sys.argv[1] + path, data, headers, method=method)
    started = time.monotonic()
    try:
        status = urllib.request.urlopen(request, timeout=60).status
    except urllib.error.HTTPError as error:
        status = error.code
    return status, time.monotonic() - started

pushes = []
for number in range(int(sys.argv[3])):
    item = {"queue": sys.argv[2], "partition": "p", "transactionId": str(number), "payload": number}
    pushes.append(call("POST", "/api/v1/push", {"items": [item]}))
print(json.dumps([pushes, call("GET", f"/api/v1/pop/queue/{sys.argv[2]}?timeout=1000")]))
"""
"""A client on the host itself, which pushes messages in order and pops once."""


@dataclass
class CutOff:
    """What was seen while a host was cut off and when it was back. Times are seconds since either."""

    host: NetworkHost
    removed_s: float = 0.0
    """When HAProxy sent it nothing more."""
    back_s: float = 0.0
    """When HAProxy sent requests again."""
    woken_s: float = 0.0
    """When a waiting pop of it was woken by another host again."""
    journal_empty_s: float = 0.0
    journal_records: int = 0
    """The largest number of records seen in its journal."""
    local_pushes: list[tuple[int, float]] = field(default_factory=list)
    """Status and duration of the pushes of a client on the host itself, from the moment of the cut."""
    local_pop: tuple[int, float] = (0, 0.0)
    covered_behind_s: float = 0.0
    """How far its minute rows were behind those of other hosts at the end of the cut."""


@dataclass
class Observations:
    """The result of the experiment."""

    wakeups_s: dict[str, float] = field(default_factory=dict)
    """The time from a push on one host to its pop on another one."""
    isolated: CutOff | None = None
    without_servers: CutOff | None = None
    evaluators: list[str] = field(default_factory=list)
    """The hosts that evaluated alert rules, one after the other."""
    takeover_s: float = 0.0
    notices: list[tuple[str, str, str]] = field(default_factory=list)
    """Id, transition and rule of every request that the webhook received."""
    minute_rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    stored_messages: int = 0
    local_log: list[str] = field(default_factory=list)
    undrained: str | None = None
    calls: dict[str, int] = field(default_factory=dict)
    load_s: float = 0.0


class Experiment:
    """Runs the load and cuts the hosts."""

    def __init__(self, cluster: HostCluster, history: HistoryWriter) -> None:
        self._cluster, self._history = cluster, history
        self._network = cluster.network
        self._result = Observations()
        self._stack = AsyncExitStack()
        self._numbers = iter(range(1_000_000))

    async def run(self) -> Observations:
        async with self._stack as stack:
            self._direct = await stack.enter_async_context(httpx.AsyncClient(timeout=deadline_s(60)))
            self._http = await self._open_client()
            self._receiver = await stack.enter_async_context(receive_http(host=self._network.back_gateway))
            await configure(self._http, LEASE_S)
            await self._prepare_alerts()
            state = LoadState()
            started = time.monotonic()
            async with asyncio.TaskGroup() as tasks:
                for client in await self._build_clients(state):
                    tasks.create_task(client)
                await self._measure_wakeups()
                await self._observe_alert("rule-before")
                await self._wait_for_minute_rows()
                await self._isolate(self._cluster.hosts[0])
                await self._cut_from_servers(self._choose_victim())
                await self._observe_alert("rule-after")
                await self._measure_wakeups()
                self._result.load_s = time.monotonic() - started
                await self._drain(state)
            await self._read_results()
        return self._result

    async def _open_client(self, source: str | None = None) -> httpx.AsyncClient:
        """Return a client of HAProxy, as from a machine of its own if it has a source address."""
        limits = httpx.Limits(max_connections=100, max_keepalive_connections=100)
        transport = httpx.AsyncHTTPTransport(local_address=source, limits=limits)
        client = httpx.AsyncClient(
            base_url=self._cluster.balancer.address, timeout=deadline_s(CALL_TIMEOUT_S), transport=transport
        )
        return await self._stack.enter_async_context(client)

    async def _build_clients(self, state: LoadState) -> list[Any]:
        def random_source(name: str) -> random.Random:
            return random.Random(f"{SEED} {name}")

        clients: list[Any] = []
        shared = await self._open_client("127.0.0.20")
        for number, partition in enumerate(PARTITIONS):
            http = await self._open_client(f"127.0.0.{11 + number}")
            recorded = RecordedClient(f"producer-{number}", http, self._history)
            clients.append(
                Producer(recorded, state, partition, repeats=True).run(random_source(recorded.name))
            )
        for name in ("shared-0", "shared-1"):
            recorded = RecordedClient(name, shared, self._history)
            clients.append(
                Producer(recorded, state, SHARED_PARTITION, repeats=False).run(random_source(name))
            )
        for queue, group in [*((QUEUE, group) for group in GROUPS), (OUT, "readers")]:
            for number in range(CONSUMERS_PER_GROUP):
                recorded = RecordedClient(f"{group}-{number}", self._http, self._history)
                clients.append(Consumer(recorded, state, queue, group, random_source(recorded.name)).run())
        for queue in LIMITS:
            recorded = RecordedClient(f"{queue}-producer", self._http, self._history)
            clients.append(TaskProducer(recorded, state, queue).run(random_source(recorded.name)))
            for number in range(TASK_WORKERS):
                recorded = RecordedClient(f"{queue}-worker-{number}", self._http, self._history)
                clients.append(TaskWorker(recorded, state, queue, random_source(recorded.name)).run())
        return clients

    # Wake-ups

    async def _measure_wakeups(self) -> None:
        """Measure each host's wake-up by the next one."""
        for host in self._cluster.hosts:
            other = self._cluster.hosts[host.number % len(self._cluster.hosts)]
            await self._wait_until_woken(host, other)

    async def _wait_until_woken(self, waiting: NetworkHost, pushing: NetworkHost) -> None:
        """Wait until a pop that waits at one host is woken by a push at another one; record how fast."""

        async def is_woken() -> bool:
            seconds = await self._wake(waiting, pushing)
            if seconds is not None:
                name = f"{pushing.name} to {waiting.name}"
                self._result.wakeups_s[name] = max(seconds, self._result.wakeups_s.get(name, 0.0))
            return seconds is not None

        await wait_until_async(is_woken, 60, f"{pushing.name} wakes {waiting.name}")

    async def _wake(self, waiting: NetworkHost, pushing: NetworkHost) -> float | None:
        """Return the time from a push to the answer of a pop that waits; None if that gets nothing."""
        group = f"g{next(self._numbers)}"
        url = f"{self._cluster.url_of(waiting)}/api/v1/pop/queue/{WAKE_QUEUE}"
        params = {"consumerGroup": group, "autoAck": "true", "subscriptionMode": "new", "batch": "1"}
        waiting_params = params | {"wait": "true", "timeout": str(WAKE_TIMEOUT_MS)}
        # The first pop creates the group, at the end of the queue.
        if (await self._direct.get(url, params=params)).status_code != 204:
            return None
        pop = asyncio.create_task(self._direct.get(url, params=waiting_params))
        try:
            # A pop that came later and does not wait is answered: the other one waits by now.
            await self._direct.get(url, params=params)
            item = {"queue": WAKE_QUEUE, "payload": group}
            started = time.monotonic()
            pushed = await self._direct.post(
                f"{self._cluster.url_of(pushing)}/api/v1/push", json={"items": [item]}
            )
            assert pushed.status_code == 201, pushed.text
            response = await pop
            return time.monotonic() - started if response.status_code == 200 else None
        finally:
            pop.cancel()

    # Alerts

    async def _prepare_alerts(self) -> None:
        """Make the metrics look an hour late, so that a rule about their age fires at once."""
        key = QUEUE_METRIC.stream_keys[0]
        with Redis.from_url(self._cluster.redis_url) as redis:
            redis.xgroup_create(key, CONSUMER_GROUP, id="0", mkstream=True)
            redis.xadd(key, {"event": ""}, id=f"{int(time.time() - STALE_S) * 1000}-0")
        channel = {"name": "ops", "kind": "webhook", "url": self._receiver.url}
        (await self._http.post("/api/v1/alert-channels", json=channel)).raise_for_status()

    async def _observe_alert(self, name: str) -> None:
        """Add a rule that fires, and wait until the webhook has its notice."""
        rule = {"name": name, "type": "PIPELINE_STALE", "threshold": 1000, "channels": ["ops"]}

        async def is_created() -> bool:
            response = await self._http.post("/api/v1/alert-rules", json=rule)
            return response.status_code == 201

        await wait_until_async(is_created, 20, f"the rule {name!r} is created")

        async def is_notified() -> bool:
            return any(name in request.body.decode() for request in self._receiver.requests)

        await wait_until_async(is_notified, NOTICE_TIMEOUT_S, f"the incident of {name!r} is notified")
        self._result.evaluators.append(await self._read_evaluator())

    async def _read_evaluator(self) -> str:
        [address] = await self._query(LOCK_HOLDER)
        return next(host.name for host in self._cluster.hosts if host.back_address == address[0])

    async def _query(self, statement: str, *args: object) -> list[Any]:
        connection = await asyncpg.connect(self._cluster.postgres_url)
        try:
            rows: list[Any] = await connection.fetch(statement, *args)
            return rows
        finally:
            await connection.close()

    # Cuts

    async def _isolate(self, host: NetworkHost) -> None:
        """Cut both links of the host on which the alerts are evaluated."""
        cut = self._result.isolated = CutOff(host)
        others = [other for other in self._cluster.hosts if other is not host]
        local = [{"queue": LOCAL_QUEUE, "partition": "p", "transactionId": "first", "payload": "first"}]
        response = await self._direct.post(f"{self._cluster.url_of(host)}/api/v1/push", json={"items": local})
        assert response.status_code == 201, response.text
        async with self._cut(cut, *LINKS) as since:
            client = asyncio.create_task(asyncio.to_thread(self._run_local_client, host))
            cut.removed_s = await self._time(
                since, self._is_removed(host, CONNECTED, PUSHES), "HAProxy notices"
            )

            async def is_taken_over() -> bool:
                return await self._read_evaluator() != host.name

            self._result.takeover_s = await self._time(since, is_taken_over, "another host evaluates")
            await self._observe_alert("rule-during")
            await self._wait_until_woken(others[0], others[1])
            cut.local_pushes, cut.local_pop = json.loads(await client)
        await self._wait_until_back(cut)

    async def _cut_from_servers(self, host: NetworkHost) -> None:
        """Cut the link of a host to the servers. HAProxy reaches its broker."""
        cut = self._result.without_servers = CutOff(host)
        async with self._cut(cut, "back") as since:
            cut.removed_s = await self._time(since, self._is_removed(host, CONNECTED), "HAProxy notices")

            async def is_journal_used() -> bool:
                return await self._read_journal(cut) > 0

            await self._time(since, is_journal_used, "pushes go to the journal")
        await self._wait_until_back(cut)

    @asynccontextmanager
    async def _cut(self, cut: CutOff, *links: str) -> AsyncIterator[float]:
        """Cut links of a host for CUT_S, or longer if the block takes longer. Yields the time of the cut."""
        number = next(self._numbers)
        self._history.begin_fault(f"{cut.host.name} cut off: {', '.join(links)}", number)
        self._network.cut(cut.host, *links)
        since = time.monotonic()
        try:
            yield since

            async def is_over() -> bool:
                if links == ("back",):
                    await self._read_journal(cut)
                return time.monotonic() - since >= CUT_S

            await wait_until_async(is_over, CUT_S, "the cut is over")
            rows = {row["hostname"]: row["covered_to"] for row in await self._query(COVERED)}
            own = rows.pop(cut.host.name)
            cut.covered_behind_s = (min(rows.values()) - own).total_seconds()
        finally:
            self._network.restore(cut.host, *links)
            self._history.end_fault(number)

    async def _wait_until_back(self, cut: CutOff) -> None:
        since = time.monotonic()

        async def wait_for_journal() -> None:
            async def is_empty() -> bool:
                return await self._read_journal(cut) == 0

            cut.journal_empty_s = await self._time(since, is_empty, "the journal is replayed")

        async def wait_for_wakeups() -> None:
            other = self._cluster.hosts[cut.host.number % len(self._cluster.hosts)]
            await self._wait_until_woken(cut.host, other)
            cut.woken_s = time.monotonic() - since

        async def wait_for_requests() -> None:
            async def is_back() -> bool:
                up = (self._cluster.balancer.is_up(name, cut.host.number) for name in (CONNECTED, PUSHES))
                return all(up)

            cut.back_s = await self._time(since, is_back, "HAProxy uses it again")

        async with asyncio.TaskGroup() as tasks:
            for wait in (wait_for_journal, wait_for_wakeups, wait_for_requests):
                tasks.create_task(wait())

    def _is_removed(self, host: NetworkHost, *backends: str) -> Callable[[], Awaitable[bool]]:
        async def is_removed() -> bool:
            return not any(self._cluster.balancer.is_up(backend, host.number) for backend in backends)

        return is_removed

    async def _time(self, since: float, condition: Callable[[], Awaitable[bool]], message: str) -> float:
        await wait_until_async(condition, 90, message)
        return time.monotonic() - since

    async def _read_journal(self, cut: CutOff) -> int:
        """Return the records in the journal of a host, which answers without PostgreSQL too."""
        stats = await self._direct.get(f"{self._cluster.url_of(cut.host)}/api/v1/operations/stats")
        records: int = stats.json()["journal"]["records"]
        cut.journal_records = max(cut.journal_records, records)
        return records

    def _run_local_client(self, host: NetworkHost) -> str:
        return host.run_python(LOCAL_PROGRAM, self._cluster.url_of(host), LOCAL_QUEUE, str(LOCAL_PUSHES))

    def _choose_victim(self) -> NetworkHost:
        """Return the host with most producers among those that were not cut off yet."""
        producers = self._cluster.balancer.count_producers()
        return max(self._cluster.hosts[1:], key=lambda host: producers[host.number])

    async def _wait_for_minute_rows(self) -> None:
        """Wait until every host has written its first minute row, so that the cut ends one."""

        async def are_written() -> bool:
            return len(await self._query(COVERED)) == len(self._cluster.hosts)

        await wait_until_async(are_written, 90, "every host has a minute row")

    # Results

    async def _drain(self, state: LoadState) -> None:
        state.producing = state.misbehaving = False
        await configure(self._http, DRAIN_LEASE_S)
        final = FinalState(self._cluster.postgres_url, self._http, self._history)
        self._result.undrained = await final.wait_until_drained()
        state.consuming = False
        await final.record(pipeline=False)

    async def _read_results(self) -> None:
        log = """SELECT l.transaction_ids FROM penstock.log l
            JOIN penstock.partitions t ON t.id = l.partition_id
            JOIN penstock.queues q ON q.id = t.queue_id WHERE q.name = $1 ORDER BY l.first_offset"""
        self._result.local_log = [
            name for row in await self._query(log, LOCAL_QUEUE) for name in row["transaction_ids"]
        ]
        [[stored]] = await self._query("SELECT sum(next_offset)::bigint FROM penstock.partitions")
        self._result.stored_messages = stored

        async def are_written() -> bool:
            rows = await self._query(COVERED)
            self._result.minute_rows = {row["hostname"]: dict(row) for row in rows}
            return bool(sum(row["push_messages"] for row in rows) >= stored)

        await wait_until_async(are_written, 30, "the minute rows of all hosts have every message")
        self._result.notices = [
            (request.headers["webhook-id"], request.json["type"], request.body.decode())
            for request in self._receiver.requests
        ]
        self._result.calls = dict(self._history.outcomes)


def run_experiment(cluster: HostCluster, history_path: Path) -> Observations:
    history = HistoryWriter(history_path)
    try:
        return asyncio.run(Experiment(cluster, history).run())
    finally:
        history.close()
