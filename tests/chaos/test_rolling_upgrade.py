"""Brokers of two neighbouring versions serve one database while it is migrated, and none fails a request.

A broker of version N takes load. The migration of version N+1 runs, its broker joins, and the old one stops.
`tools/rolling_upgrade.py REVISION` runs this test with the wheel of an earlier revision as N.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import httpx
import pytest
import pytest_asyncio
from chaos.next_version import InstalledVersion

from penstock.embedded.servers.ports import any_free_port
from tests.chaos.rolling_load import PARTITIONS, RollingLoad
from tests.chaos.upgrade_packages import install_versions
from tests.deadlines import deadline_s
from tests.integration.databases import administering
from tests.waiting import wait_until_async

START_TIMEOUT_S = 60
MESSAGES_PER_STEP = 60
DRAIN_S = 1
"""Longer than the balancer needs to see that a broker is not ready."""


class BrokerProcess:
    """A broker of an installed version on a port of its own."""

    def __init__(self, version: InstalledVersion, settings: dict[str, str], home: Path) -> None:
        port = any_free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = home.with_suffix(".log")
        settings = {**settings, "PENSTOCK_PORT": str(port), "PENSTOCK_HOME": str(home)}
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                version.command("serve"),
                env=version.environment(settings),
                cwd=version.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    async def terminate(self) -> None:
        """Send SIGTERM and wait for the end."""
        self.process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(self.process.wait, deadline_s(DRAIN_S + 25))
        assert self.process.returncode in (0, -signal.SIGTERM), self.log.read_text()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest_asyncio.fixture
async def empty_database_url(postgres_url: str) -> AsyncIterator[str]:
    name = f"upgrade_{os.getpid()}"
    async with administering(postgres_url) as connection:
        await connection.execute(f"CREATE DATABASE {name}")
        try:
            yield urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}"))
        finally:
            await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def settings(empty_database_url: str, redis_url: str, clickhouse_url: str, tmp_path: Path) -> dict[str, str]:
    warehouse = urlsplit(clickhouse_url)._replace(path=f"/upgrade_{os.getpid()}")
    return {
        "PENSTOCK_POSTGRES_URL": empty_database_url,
        "PENSTOCK_REDIS_URL": redis_url,
        "PENSTOCK_CLICKHOUSE_URL": urlunsplit(warehouse),
        "PENSTOCK_HOME": str(tmp_path / "migrate"),
        "PENSTOCK_DRAIN_S": str(DRAIN_S),
    }


@pytest.fixture
def started() -> Iterator[list[BrokerProcess]]:
    brokers: list[BrokerProcess] = []
    yield brokers
    for broker in brokers:
        broker.kill()


async def join(load: RollingLoad, broker: BrokerProcess) -> None:
    """Add a broker to the balancer and wait until it serves."""
    load.urls.add(broker.url)

    async def is_ready() -> bool:
        assert broker.process.poll() is None, broker.log.read_text()
        return broker.url in load.ready

    await wait_until_async(is_ready, START_TIMEOUT_S, f"the broker at {broker.url} is ready")


async def read_version(client: httpx.AsyncClient, broker: BrokerProcess) -> str:
    """Return the version that the broker itself reports."""
    version: str = (await client.get(f"{broker.url}/openapi.json")).json()["info"]["version"]
    return version


async def deliver_more(load: RollingLoad, *brokers: BrokerProcess) -> None:
    """Wait until further messages were delivered and each of these brokers served some of the requests."""
    goal = load.total_delivered + MESSAGES_PER_STEP
    before = {broker.url: load.served[broker.url] for broker in brokers}

    async def have_served() -> bool:
        served = all(load.served[url] > count for url, count in before.items())
        return served and load.total_delivered >= goal

    await wait_until_async(have_served, 30, f"{goal} messages are delivered")


async def test_brokers_of_two_versions_serve_one_database_during_an_upgrade(
    settings: dict[str, str], started: list[BrokerProcess], tmp_path: Path
) -> None:
    old, new = await asyncio.to_thread(install_versions, tmp_path)
    await asyncio.to_thread(old.run, settings, "migrate")

    def start(version: InstalledVersion, name: str) -> BrokerProcess:
        started.append(BrokerProcess(version, settings, tmp_path / name))
        return started[-1]

    leaving = start(old, "old")
    async with httpx.AsyncClient(timeout=deadline_s(20)) as client, asyncio.TaskGroup() as tasks:
        load = RollingLoad(client)
        balancer = tasks.create_task(load.balance())
        await join(load, leaving)
        producers = [tasks.create_task(load.produce(partition)) for partition in PARTITIONS]
        consumer = tasks.create_task(load.consume())
        await deliver_more(load, leaving)

        before_migration = load.total_delivered
        await asyncio.to_thread(new.run, settings, "migrate")
        assert load.total_delivered > before_migration, "the queues stood still during the migration"
        await deliver_more(load, leaving)

        joining = start(new, "new")
        await join(load, joining)
        await deliver_more(load, leaving, joining)
        served = [await read_version(client, broker) for broker in (leaving, joining)]
        assert served == [old.version, new.version]
        await leaving.terminate()
        await deliver_more(load, joining)
        assert 503 in load.unready_statuses[leaving.url]

        load.stopping.set()
        await asyncio.gather(*producers)
        await asyncio.wait_for(consumer, deadline_s(30))
        balancer.cancel()
    await joining.terminate()
    assert load.failures == []
    for partition in PARTITIONS:
        assert load.delivered[partition] == list(range(load.pushed[partition])), partition


async def test_a_push_that_was_answered_before_a_shutdown_is_stored(
    settings: dict[str, str], started: list[BrokerProcess], tmp_path: Path
) -> None:
    """Without a drain, clients lose their connections: they see no answer, but never a wrong one."""
    source = InstalledVersion(Path(__file__).parents[2] / "src")
    settings |= {"PENSTOCK_DRAIN_S": "0"}
    await asyncio.to_thread(source.run, settings, "migrate")
    broker = BrokerProcess(source, settings, tmp_path / "broker")
    started.append(broker)
    answered: dict[str, int] = defaultdict(int)
    refused: list[str] = []

    async def push(partition: str) -> None:
        for number in range(100_000):
            item = {"queue": "orders", "partition": partition, "payload": number}
            try:
                response = await client.post(f"{broker.url}/api/v1/push", json={"items": [item]})
            except httpx.HTTPError:
                return
            if response.status_code != 201:
                refused.append(response.text)
            answered[partition] += 1

    async with httpx.AsyncClient(timeout=deadline_s(20)) as client:
        load = RollingLoad(client)
        balancer = asyncio.create_task(load.balance())
        await join(load, broker)
        balancer.cancel()
        async with asyncio.TaskGroup() as tasks:
            for producer in range(8):
                tasks.create_task(push(f"p{producer}"))

            async def have_many() -> bool:
                return sum(answered.values()) >= MESSAGES_PER_STEP

            await wait_until_async(have_many, 30, "pushes are answered")
            await broker.terminate()
    assert refused == []
    connection = await asyncpg.connect(settings["PENSTOCK_POSTGRES_URL"])
    try:
        rows = await connection.fetch("SELECT name, next_offset FROM penstock.partitions")
    finally:
        await connection.close()
    stored = {row["name"]: row["next_offset"] for row in rows}
    # A producer sends one push at a time: at most its last one was stored without an answer.
    assert all(stored[name] - count in (0, 1) for name, count in answered.items()), (stored, answered)
