"""Measure what an export of spans costs the broker: CPU time of single pushes with it and without.

A broker without the export has not loaded OpenTelemetry's SDK, and a push takes the calls that
docs/architecture.md counts: its cost is that of any push. Such pushes take part twice, to show the error.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bench import http_load
from bench.cpu_turns import TurnKind, measure_in_turns, push_requests
from bench.servers import ProcessTree, RunningBroker, Servers

CONNECTIONS = 50
OFF, EXPORTING, OFF_AGAIN = "off", "exporting", "off again"
PROTOBUF_LIBRARY = "_upb"
"""A file of Protobuf, which only the exporter needs in a broker."""


async def measure_tracing(servers: Servers, broker: RunningBroker, turns: int) -> dict[str, float]:
    """Return the microseconds of the broker's CPU per push of each kind, and the ratios."""
    if _has_loaded_sdk(broker.processes):
        raise RuntimeError("The broker has loaded OpenTelemetry's SDK without an endpoint.")
    with _discarding_collector() as endpoint:
        exporting = await servers.start_broker(
            "exporting", environment={"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
        )
        kinds = {}
        for kind, target in ((OFF, broker), (EXPORTING, exporting), (OFF_AGAIN, broker)):
            connections = await http_load.connect(target.port, CONNECTIONS)
            kinds[kind] = TurnKind(connections, target.processes, push_requests("tracing-check"))
        push_us = await measure_in_turns(kinds, turns)
        for measured in kinds.values():
            for connection in measured.connections:
                connection.close()
    off_us = (push_us[OFF] + push_us[OFF_AGAIN]) / 2
    return {
        "push_us_off": round(off_us, 2),
        "push_us_exporting": round(push_us[EXPORTING], 2),
        "exporting_vs_off_push": round(push_us[EXPORTING] / off_us, 4),
        "off_vs_off_push": round(push_us[OFF_AGAIN] / push_us[OFF], 4),
    }


def _has_loaded_sdk(processes: ProcessTree) -> bool:
    return any(
        PROTOBUF_LIBRARY in mapping.path
        for process in processes.processes()
        for mapping in process.memory_maps()
    )


@contextmanager
def _discarding_collector() -> Iterator[str]:
    """Yield the endpoint of a collector that accepts everything and keeps nothing."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
