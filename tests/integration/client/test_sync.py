"""The synchronous client: threads, consumers, signals."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.client import Client, ClientSettings, FlushFailed, LeaseLost, Message, SyncClient
from penstock.embedded.servers.ports import any_free_port
from tests.deadlines import deadline_s

PROGRAM = Path(__file__).parent / "client_only_consumer.py"


@pytest.fixture
def sync_client(broker_url: str) -> Iterator[SyncClient]:
    with SyncClient(broker_url) as client:
        yield client


async def test_push_pop_and_ack(sync_client: SyncClient, queue: str) -> None:
    def work() -> None:
        assert sync_client.push(queue, {"n": 1}).status == "queued"
        [message] = sync_client.pop(queue, wait=True, timeout_s=10)
        assert message.data == {"n": 1}
        sync_client.extend(message, 60)
        with sync_client.transaction() as transaction:
            transaction.ack(message).push(queue, {"n": 2})
        with pytest.raises(LeaseLost):
            sync_client.ack(message)
        assert sync_client.transaction().push(queue, 3).commit().success
        assert sync_client.pop(queue, batch=9)[0].data == {"n": 2}

    await asyncio.to_thread(work)


async def test_many_threads_share_a_client_and_a_buffer(
    sync_client: SyncClient, client: Client, queue: str
) -> None:
    def work() -> None:
        with sync_client.buffered(queue, size=5) as buffer, ThreadPoolExecutor(4) as threads:

            def produce(partition: str) -> None:
                for n in range(10):
                    buffer.push(n, partition=partition)

            for future in [threads.submit(produce, f"p{n}") for n in range(4)]:
                future.result()
        assert len(buffer) == 0

    await asyncio.to_thread(work)
    for n in range(4):
        popped = await client.pop(queue, partition=f"p{n}", batch=100)
        assert [message.data for message in popped] == list(range(10))


async def test_close_raises_a_failed_flush_in_the_calling_thread(queue: str) -> None:
    def work() -> None:
        client = SyncClient(f"http://127.0.0.1:{any_free_port()}", ClientSettings(retry_attempts=1))
        client.buffered(queue, interval_s=600).push(1)
        with pytest.raises(FlushFailed) as failed:
            client.close()
        assert [message.payload for message in failed.value.unsent] == [1]
        client.close()
        with pytest.raises(RuntimeError, match="closed"):
            client.push(queue, 1)

    await asyncio.to_thread(work)


async def test_a_handler_may_use_the_client_of_its_consumer(sync_client: SyncClient, queue: str) -> None:
    out = f"{queue}-out"

    def work() -> list[int]:
        for n in range(3):
            sync_client.push(queue, n)
        finished = threading.Event()

        def handle(message: Message) -> None:
            sync_client.push(out, message.data * 10)
            if message.data == 2:
                finished.set()

        with sync_client.consume(queue, handle, batch=2):
            assert finished.wait(deadline_s(30))
        assert sync_client.pop(queue) == []
        return [message.data for message in sync_client.pop(out, batch=9)]

    assert await asyncio.to_thread(work) == [0, 10, 20]


async def test_an_asynchronous_handler_cannot_use_the_synchronous_client(
    sync_client: SyncClient, queue: str
) -> None:
    errors: list[str] = []

    def work() -> None:
        sync_client.push(queue, 1)

        async def handle(message: Message) -> None:
            try:
                sync_client.push(queue, 2)
            except RuntimeError as error:
                errors.append(str(error))
            consumer.stop()

        consumer = sync_client.consume(queue, handle)
        consumer.run()

    await asyncio.wait_for(asyncio.to_thread(work), deadline_s(30))
    assert "asynchronous client" in errors[0]


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_sigterm_finishes_the_running_handler_and_returns_the_rest(
    client: Client, broker_url: str, queue: str, mode: str
) -> None:
    """The consumer is a separate program that can import nothing but the client."""
    for n in range(3):
        await client.push(queue, n)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(PROGRAM),
        mode,
        broker_url,
        queue,
        env={"PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        assert await asyncio.wait_for(process.stdout.readline(), deadline_s(60)) == b"handling 0\n"
        process.send_signal(signal.SIGTERM)
        output = await asyncio.wait_for(process.stdout.read(), deadline_s(60))
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
    assert output == b"finished 0\nstopped\n"
    returned = await client.pop(queue, batch=9)
    assert [(message.data, message.retry_count) for message in returned] == [(1, 0), (2, 0)]
