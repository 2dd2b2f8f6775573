"""How long a push takes to reach a consumer that already waits, on an idle broker."""

from __future__ import annotations

import asyncio
import statistics
import time

from bench import http_load
from bench.payloads import payloads
from bench.servers import RunningBroker

SETTLE_S = 0.01


async def latencies(broker: RunningBroker, samples: int) -> dict[str, float]:
    """From before the push is sent to after the consumer has its message, in milliseconds."""
    producer, consumer = await http_load.connect(broker.port, 2)
    pop = http_load.get("/api/v1/pop/queue/waiting?batch=1&autoAck=true&wait=true&timeout=10000")
    taken: list[float] = []
    for payload in payloads(samples + 5, seed=7):
        push = http_load.post(
            "/api/v1/push", f'{{"items":[{{"queue":"waiting","payload":{payload}}}]}}'.encode()
        )
        arrived = 0.0

        def on_message(status: int, body: bytes) -> None:
            nonlocal arrived
            arrived = time.perf_counter()
            if status != 200:
                raise RuntimeError(f"answered {status}: {body[:300].decode(errors='replace')}")

        got = consumer.start(pop, on_message)
        await asyncio.sleep(SETTLE_S)  # the consumer is parked by now
        sent = time.perf_counter()
        await asyncio.gather(got, producer.start(push, lambda status, body: None))
        taken.append((arrived - sent) * 1000)
    for connection in (producer, consumer):
        assert connection.transport is not None
        connection.transport.close()
    cuts = statistics.quantiles(taken[5:], n=20)
    return {"p50": round(cuts[9], 2), "p95": round(cuts[18], 2), "samples": samples}
