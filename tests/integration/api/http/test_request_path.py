"""Count the calls of a push, a pop and an ack, from the bytes of the request to SQL and back.

docs/architecture.md has the figures. A call is counted once, however often its coroutine is resumed, and
comprehensions belong to the function around them. The broker is calm, ids and request heads are cached, and
no pop waits. Run this test with `-s` to print the steps.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import penstock
from tests.integration.api.http.raw_connections import RawConnection, RunningServer, get, post
from tests.waiting import wait_until_async

PACKAGE = str(Path(penstock.__file__).parent) + "/"
ARCHITECTURE = Path(__file__).parents[4] / "docs" / "architecture.md"

Call = tuple[str, str]
"""The file of a function and its name."""


@contextmanager
def recorded_calls() -> Iterator[list[Call]]:
    """Record the calls of Penstock's functions."""
    calls: list[Call] = []
    frames: set[FrameType] = set()

    def record(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if (
            event == "call"
            and code.co_filename.startswith(PACKAGE)
            and not code.co_name.endswith(("comp>", "genexpr>"))
            and frame not in frames
        ):
            frames.add(frame)
            calls.append((code.co_filename.removeprefix(PACKAGE), code.co_qualname))

    sys.setprofile(record)
    try:
        yield calls
    finally:
        sys.setprofile(None)


async def respond(connection: RawConnection, request: bytes) -> tuple[object, list[Call]]:
    """Return the body of the response and the calls until it arrived."""
    with recorded_calls() as calls:
        connection.send(request)
        status, _, body = await connection.read_response()
    assert status in (200, 201), body
    return body, calls


async def record_round(connection: RawConnection) -> dict[str, list[Call]]:
    """Push, pop and ack one message, and return the calls of each."""
    _, pushed = await respond(connection, post("/api/v1/push", b'{"items":[{"queue":"q","payload":1}]}'))
    body, popped = await respond(connection, get("/api/v1/pop/queue/q"))
    assert isinstance(body, dict)
    [message] = body["messages"]
    ack = json.dumps({name: message[name] for name in ("transactionId", "partitionId", "leaseId")}).encode()
    _, acked = await respond(connection, post("/api/v1/ack", ack))
    return {"push": pushed, "pop": popped, "ack": acked}


async def test_a_request_takes_no_more_calls_than_documented(server: RunningServer) -> None:
    connection = await RawConnection.open(server)
    rows = re.findall(r"^\| (push|pop|ack) \| (\d+) \| (\d+) \|", ARCHITECTURE.read_text(), re.MULTILINE)
    limits = {kind: (int(calls), int(files)) for kind, calls, files in rows}
    assert list(limits) == ["push", "pop", "ack"]
    shortest: dict[str, list[Call]] = {}

    async def fits() -> bool:
        for kind, calls in (await record_round(connection)).items():
            shortest[kind] = min(shortest.get(kind, calls), calls, key=len)
        return all(is_within(shortest[kind], *limits[kind]) for kind in limits)

    # Background tasks take part in some rounds, and take the connections that are ready in others.
    try:
        await wait_until_async(fits, timeout=10, message="a request takes no more calls than documented")
    finally:
        for kind, calls in shortest.items():
            steps = "\n".join(f"  {file} {function}" for file, function in calls)
            print(f"{kind}: {len(calls)} calls in {len({file for file, _ in calls})} files\n{steps}")


def is_within(calls: list[Call], max_calls: int, max_files: int) -> bool:
    return len(calls) <= max_calls and len({file for file, _ in calls}) <= max_files
