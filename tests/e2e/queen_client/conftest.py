"""Two broker processes on one port, and the published clients of the wire contract, unchanged.

Every test runs with each version of the client, and in two modes: the broker executes every push (direct), or
it defers every push (deferred).
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import httpx
import pytest
import pytest_asyncio
from queen import Queen

from penstock.durable import migrations
from penstock.embedded.servers.ports import any_free_port
from tests.deadlines import deadline_s
from tests.e2e.queen_client.client_versions import RETRIES, VERSIONS, load_client
from tests.redis_databases import RedisDatabases
from tests.waiting import wait_until, wait_until_async

START_TIMEOUT_S = 60
DIRECT, DEFERRED = "direct", "deferred"
LOAD_SETTINGS = {
    # Responses must not depend on the load of the machine.
    DIRECT: {"PENSTOCK_LOAD_MANAGEMENT": "false"},
    DEFERRED: {"PENSTOCK_LOAD_PUSH": "0", "PENSTOCK_LOAD_WAIT_S": "60"},
}
ENCRYPTION_KEY = "k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


async def create_database(url: str) -> str:
    name = f"queen_client_{uuid4().hex}"  # the files of the package may run in turn with other packages
    admin = await asyncpg.connect(url)
    await admin.execute(f"CREATE DATABASE {name}")
    await admin.close()
    database_url = urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    async with migrations.migration_lock(database_url) as connection:
        await migrations.apply(connection)
    return database_url


@pytest.fixture(scope="package", params=[DIRECT, DEFERRED])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="package")
def shared_redis_url(redis_databases: RedisDatabases) -> Iterator[str]:
    """A Redis database for the brokers, and so for all tests of the package."""
    with redis_databases.reserve() as redis_url:
        yield redis_url


@pytest.fixture(scope="package")
def url(
    postgres_url: str, shared_redis_url: str, tmp_path_factory: pytest.TempPathFactory, mode: str
) -> Iterator[str]:
    """Two brokers started with `penstock serve`. ClickHouse is unreachable, which must not affect queues."""
    port = any_free_port()
    settings = {
        "PENSTOCK_POSTGRES_URL": asyncio.run(create_database(postgres_url)),
        "PENSTOCK_REDIS_URL": shared_redis_url,
        "PENSTOCK_CLICKHOUSE_URL": "http://127.0.0.1:1/default",
        "PENSTOCK_HOME": str(tmp_path_factory.mktemp("home")),
        "PENSTOCK_PORT": str(port),
        "PENSTOCK_WORKERS": "2",
        "PENSTOCK_ENCRYPTION_KEYS": ENCRYPTION_KEY,
        "PENSTOCK_LOG_LEVEL": "warning",
        **LOAD_SETTINGS[mode],
    }
    command = [sys.executable, "-m", "penstock.cli.main", "serve"]
    process = subprocess.Popen(command, env={**os.environ, **settings}, stdin=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until(
            lambda: httpx.get(f"{address}/api/v1/status").status_code == 200,
            START_TIMEOUT_S,
            "the broker answers",
        )
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(deadline_s(30))


@pytest.fixture(params=VERSIONS)
def client_version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest_asyncio.fixture
async def queen(url: str, mode: str, client_version: str) -> AsyncIterator[Queen]:
    # The client replaces the signal handlers of the process; restore them afterwards.
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    async with load_client(client_version).Queen(url=url, **RETRIES[client_version]) as client:
        if mode == DEFERRED:
            client._http_client._client.event_hooks["response"].append(wait_for_operations)
        yield client
    for number, handler in handlers.items():
        signal.signal(number, handler)


async def wait_for_operations(response: httpx.Response) -> None:
    """Check that a push was deferred, and hold its response back until the broker has executed it.

    A test continues after a push as if it had been executed at once.
    """
    if response.request.url.path != "/api/v1/push" or not response.is_success:
        return
    await response.aread()
    results = response.json()
    deferred = [result for result in results if "operationId" in result]
    assert deferred or all(result["status"] == "duplicate" for result in results), results
    async with httpx.AsyncClient(base_url=str(response.request.url.join("/"))) as http:

        async def are_executed() -> bool:
            operation_ids = {result["operationId"] for result in deferred}
            responses = [
                await http.get(f"/api/v1/operations/{operation_id}") for operation_id in operation_ids
            ]
            return {response.json()["status"] for response in responses} <= {"completed"}

        await wait_until_async(are_executed, 20, "the deferred push is executed")
