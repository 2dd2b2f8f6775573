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

PACKAGE = str(Path(penstock.__file__).parent) + "/"
ARCHITECTURE = Path(__file__).parents[4] / "docs" / "architecture.md"
REPETITIONS = 20

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


async def test_a_request_takes_no_more_calls_than_documented(server: RunningServer) -> None:
    connection = await RawConnection.open(server)
    runs: dict[str, list[list[Call]]] = {"push": [], "pop": [], "ack": []}
    for _ in range(REPETITIONS):
        push = post("/api/v1/push", b'{"items":[{"queue":"q","payload":1}]}')
        runs["push"].append((await respond(connection, push))[1])
        popped, calls = await respond(connection, get("/api/v1/pop/queue/q"))
        runs["pop"].append(calls)
        assert isinstance(popped, dict)
        [message] = popped["messages"]
        names = ("transactionId", "partitionId", "leaseId")
        body = json.dumps({name: message[name] for name in names}).encode()
        runs["ack"].append((await respond(connection, post("/api/v1/ack", body)))[1])
    rows = re.findall(r"^\| (push|pop|ack) \| (\d+) \| (\d+) \|", ARCHITECTURE.read_text(), re.MULTILINE)
    assert [kind for kind, _, _ in rows] == ["push", "pop", "ack"]
    for kind, max_calls, max_files in rows:
        # The shortest run: background tasks take part in some of the others.
        calls = min(runs[kind], key=len)
        steps = "\n".join(f"  {file} {function}" for file, function in calls)
        files = len({file for file, _ in calls})
        print(f"{kind}: {len(calls)} calls in {files} files\n{steps}")
        assert len(calls) <= int(max_calls), f"a {kind} takes more calls:\n{steps}"
        assert files <= int(max_files), f"a {kind} goes through more files:\n{steps}"
