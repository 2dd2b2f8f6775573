"""Compare the CPU time that a broker takes for requests of several kinds, in turns of a fraction of a second.

Other load on the machine meets all kinds alike. A kind that takes part twice shows the error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench import http_load
from bench.payloads import generate_payloads
from bench.servers import ProcessTree

PARTITIONS = 64
PUSHES_PER_TURN = 250


@dataclass(frozen=True, slots=True)
class TurnKind:
    """Pushes of one kind, and the broker that gets them."""

    connections: list[http_load.Connection]
    processes: ProcessTree
    requests: list[bytes]


async def measure_in_turns(kinds: Mapping[str, TurnKind], turns: int) -> dict[str, float]:
    """Return the microseconds of the broker's CPU per push of each kind."""
    names = tuple(kinds)
    cpu_s = dict.fromkeys(names, 0.0)
    for turn in range(-1, turns):  # the first one only warms up
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            kind = kinds[name]
            before_s = kind.processes.exact_cpu_s()
            await http_load.send_all(kind.connections, iter(kind.requests), 201)
            if turn >= 0:
                cpu_s[name] += kind.processes.exact_cpu_s() - before_s
    return {name: seconds * 1e6 / (turns * PUSHES_PER_TURN) for name, seconds in cpu_s.items()}


def push_requests(queue: str, header: str = "") -> list[bytes]:
    """Return the pushes of a turn; `header` is a header line or empty."""
    requests = [
        http_load.post(
            "/api/v1/push",
            b'{"items":[{"queue":"%b","partition":"p%d","payload":%b}]}'
            % (queue.encode(), number % PARTITIONS, payload.encode()),
        )
        for number, payload in enumerate(generate_payloads(PUSHES_PER_TURN, seed=11))
    ]
    return [request.replace(b"\r\n", b"\r\n" + header.encode(), 1) for request in requests]
