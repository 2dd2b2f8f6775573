"""A program that pushes and consumes messages, for a test of its spans. Usage: traced_program.py BROKER_URL

OpenTelemetry's variables decide whether it exports them. Its last line is a JSON array of the modules of
OpenTelemetry that it has loaded.
"""

from __future__ import annotations

import asyncio
import json
import sys

from penstock.client import Batches, Client, Message, NewMessage

SECRET = "a payload that no span may contain"


async def main(url: str) -> None:
    async with Client(url) as client:
        await client.configure("orders", {"retryLimit": 3, "retryDelay": 0})
        await client.push("orders", {"text": SECRET})
        consumer = client.consume("orders", lambda message: fail_once(message, consumer.stop))
        await consumer
        await client.push_many([NewMessage("batches", SECRET), NewMessage("batches", SECRET)])
        batch_consumer = client.consume("batches", Batches(lambda messages: batch_consumer.stop()), batch=2)
        await batch_consumer
        async with client.buffered("buffered") as buffer:
            await buffer.push(SECRET)
            await buffer.push(SECRET)
        await client.tasks.enqueue("mails", SECRET)
        worker = client.tasks.worker("mails", lambda task: worker.stop())
        await worker
    print(json.dumps([name for name in sys.modules if name.startswith("opentelemetry")]))


def fail_once(message: Message, stop: object) -> None:
    assert callable(stop)
    if message.retry_count == 0:
        raise ValueError(SECRET)
    stop()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
