"""Measure how long a push takes to reach a consumer that already waits, on an idle broker."""

from __future__ import annotations

import asyncio
import statistics
import time

from bench import http_load
from bench.payloads import generate_payloads
from bench.servers import RunningBroker

CONSUMER_START_S = 0.01
WARM_UP_SAMPLES = 5


async def measure_latencies(broker: RunningBroker, samples: int) -> dict[str, float]:
    """Return the milliseconds from just before the push is sent until the consumer has the message."""
    producer, consumer = await http_load.connect(broker.port, 2)
    pop = http_load.get("/api/v1/pop/queue/waiting?batch=1&autoAck=true&wait=true&timeout=10000")
    latencies_ms: list[float] = []
    for payload in generate_payloads(samples + WARM_UP_SAMPLES, seed=7):
        push = http_load.post(
            "/api/v1/push", f'{{"items":[{{"queue":"waiting","payload":{payload}}}]}}'.encode()
        )
        arrived = 0.0

        def on_message(status: int, body: bytes) -> None:
            nonlocal arrived
            arrived = time.perf_counter()
            if status != 200:
                raise http_load.unexpected_response(status, body)

        popped = consumer.start(pop, on_message)
        await asyncio.sleep(CONSUMER_START_S)  # by then the broker has registered the waiting consumer
        sent = time.perf_counter()
        await asyncio.gather(popped, producer.start(push, lambda status, body: None))
        latencies_ms.append((arrived - sent) * 1000)
    for connection in (producer, consumer):
        connection.close()
    cuts = statistics.quantiles(latencies_ms[WARM_UP_SAMPLES:], n=20)
    return {"p50": round(cuts[9], 2), "p95": round(cuts[18], 2), "samples": samples}
