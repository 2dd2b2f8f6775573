"""Measure how long a push takes to reach a consumer that already waits, on an idle broker and under load.

Started as a program, this module is the load: a process of its own pushes to another queue at a steady rate.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from itertools import cycle

import uvloop

from bench import http_load
from bench.cpu_turns import push_requests
from bench.payloads import generate_payloads
from bench.servers import RunningBroker

CONSUMER_START_S = 0.01
WARM_UP_SAMPLES = 5
LOAD_CONNECTIONS = 50


async def measure_under_load(broker: RunningBroker, samples: int, pushes_per_s: float) -> dict[str, float]:
    """Return the latencies while another process pushes single messages at that rate."""
    load = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.delivery_latency", str(broker.port), str(pushes_per_s)),
        stdout=subprocess.PIPE,
    )
    try:
        assert load.stdout is not None
        if await load.stdout.readline() != b"running\n":
            raise RuntimeError("The load did not start.")
        latencies = await measure_latencies(broker, samples)
        if load.returncode is not None:
            raise RuntimeError(f"The load ended early, with exit code {load.returncode}.")
    finally:
        with suppress(ProcessLookupError):
            load.kill()
        await load.wait()
    return latencies | {"pushes_per_s": round(pushes_per_s)}


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
    cuts = statistics.quantiles(latencies_ms[WARM_UP_SAMPLES:], n=100)
    percentiles = {f"p{level}": round(cuts[level - 1], 2) for level in (50, 95, 99)}
    return percentiles | {"samples": samples}


async def generate_load(port: int, pushes_per_s: float) -> None:
    """Push single messages over 64 partitions, at a steady rate, until the process is killed."""
    connections = await http_load.connect(port, LOAD_CONNECTIONS)
    requests = cycle(push_requests("load"))
    interval_s = LOAD_CONNECTIONS / pushes_per_s
    started = time.perf_counter()

    def run_connection(number: int, connection: http_load.Connection) -> asyncio.Future[None]:
        due = started + interval_s * number / LOAD_CONNECTIONS

        def send_next(status: int, body: bytes) -> bytes:
            nonlocal due
            if status != 201:
                raise http_load.unexpected_response(status, body)
            due += interval_s
            connection.send_after_pause(next(requests), max(0.0, due - time.perf_counter()))
            return b""

        return connection.start(next(requests), send_next)

    loops = [run_connection(number, connection) for number, connection in enumerate(connections)]
    print("running", flush=True)
    await asyncio.gather(*loops)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=generate_load.__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("pushes_per_s", type=float)
    options = parser.parse_args()
    uvloop.run(generate_load(options.port, options.pushes_per_s))
