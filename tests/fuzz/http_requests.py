"""Generated requests, valid and broken: hot routes, other routes, framing, headers, pipelining."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import strategies as st

from tests.fuzz.damage import damaged

TOKENS = (
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b"\r",
    b" ",
    b":",
    b"\0",
    b"\xff",
    b"%",
    b"?",
    b"HTTP/1.0",
    b"HTTP/2.0",
    b"0",
    b"-1",
)
LEASE = "0" * 8 + "-0000-7000-8000-" + "0" * 12
PUSH = {"items": [{"queue": "fuzz-push", "partition": "p", "payload": {"n": 1}}]}
ACK = {"transactionId": "t", "partitionId": LEASE, "leaseId": LEASE, "status": "completed"}
BODIES: list[tuple[str, object]] = [
    ("/api/v1/push", PUSH),
    ("/api/v1/push", {"items": [*PUSH["items"], {"queue": "", "payload": 1}, {"queue": "fuzz-push"}]}),
    ("/api/v1/ack", ACK),
    ("/api/v1/ack/batch", {"acknowledgments": [ACK, ACK]}),
    ("/api/v1/run-queues/fuzz-tasks/tasks", {"payload": 1}),
    ("/api/v1/run-queues/fuzz-empty/dequeue", {"count": 1}),
    ("/api/v1/run-queues/dequeue", {"queues": ["fuzz-empty"]}),
    (f"/api/v1/tasks/{LEASE}/ack", {"leaseId": LEASE}),
    ("/api/v1/tasks/ack", {"tasks": [{"taskId": LEASE, "leaseId": LEASE}]}),
    ("/api/v1/transaction", {"operations": []}),
]
PATHS = [
    "/api/v1/pop/queue/fuzz-empty?batch=1",
    "/api/v1/pop/queue/fuzz-empty?batch=0",
    "/api/v1/pop/queue/fuzz%20empty",
    "/api/v1/pop/queue/fuzz-empty?consumerGroup=g&autoAck=true&wait=false",
    "/api/v1/pop/queue/",
    "/dlq-status",
    "/dlq-status?limit=0",
    "/dlq-status?limit=5&offset=1",
    "/health/live",
    "/api/v1/unknown",
    "/",
]
HEADERS = [
    "Content-Type: application/json",
    "content-type: text/plain",
    "Authorization: Bearer nonsense",
    "Origin: http://evil.example",
    "Sec-Fetch-Site: cross-site",
    "Connection: close",
    "Connection: keep-alive",
    "X-Filler: " + "x" * 40,
    "X-Empty:",
    "Host: localhost",
    "Host: other.example",
    "Content-Length: 0",
    "Accept-Encoding: gzip",
]
CORPUS = [
    b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
    % (path.encode(), len(body := json.dumps(document).encode()), body)
    for path, document in BODIES[:6]
] + [
    f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    for path in (PATHS[0], PATHS[1], PATHS[5], PATHS[9])
]
"""Usual requests, which are sent split at every byte boundary."""


def _chunked(body: bytes, size: int) -> bytes:
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """One complete request."""
    version = draw(st.sampled_from(["1.1", "1.1", "1.1", "1.0"]))
    lines = draw(st.lists(st.sampled_from(HEADERS), max_size=4))
    if draw(st.integers(0, 9)):
        lines.insert(0, "Host: localhost")
    if draw(st.booleans()):
        method, path, body = (
            draw(st.sampled_from(["GET", "GET", "DELETE"])),
            draw(st.sampled_from(PATHS)),
            b"",
        )
    else:
        method = "POST"
        path, document = draw(st.sampled_from(BODIES))
        encoded = st.just(json.dumps(document).encode())
        body = draw(
            st.one_of(encoded, encoded, damaged(encoded, (b"[" * 2_000, b"\\ud800", b"1e999", b"null")))
        )
    if body and draw(st.integers(0, 3)) == 0:
        lines.append("Transfer-Encoding: chunked")
        body = _chunked(body, draw(st.integers(1, 40)))
    elif body or draw(st.booleans()):
        lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join([f"{method} {path} HTTP/{version}", *lines]).encode()
    return head + b"\r\n\r\n" + body


@st.composite
def sent_requests(draw: st.DrawFn) -> tuple[bytes, list[int]]:
    """Up to three requests on one connection, whole or damaged, and where to split them."""
    whole = st.lists(requests(), min_size=1, max_size=draw(st.sampled_from([1, 1, 3]))).map(b"".join)
    data = draw(st.one_of(whole, whole, damaged(whole, TOKENS)))
    return data, sorted(draw(st.lists(st.integers(0, len(data)), max_size=3)))


def split(data: bytes, positions: list[int]) -> list[bytes]:
    bounds = [0, *positions, len(data)]
    return [data[start:end] for start, end in pairwise(bounds) if start < end]
