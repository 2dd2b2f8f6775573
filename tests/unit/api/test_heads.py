"""Heads that were read before: only the very same one counts, and only with all of its body."""

from __future__ import annotations

from penstock.api.http.fast_routes import may_be_remembered, pop_of, post_of, status_of
from penstock.api.http.head_cache import LONGEST, MOST, Heads
from penstock.api.routes.push_pop import start_push

URL = b"/api/v1/push"


def request(body: bytes, *headers: bytes) -> bytes:
    lines = [b"POST " + URL + b" HTTP/1.1", b"content-length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def test_only_the_same_head_with_a_whole_body_is_known() -> None:
    heads = Heads()
    heads.remember(request(b"ab\r\n\r\n"), start_push, URL, 6)
    found = heads.find(request(b"xy\r\n\r\n"))
    assert found is not None
    assert (found[0].start, found[0].url, found[1]) == (start_push, URL, b"xy\r\n\r\n")
    for other in (
        request(b"xy\r\n\r\n")[:-1],
        request(b"xy\r\n\r\n") + b"P",
        request(b"abcde"),
        request(b"xy\r\n\r\n", b"connection: close"),
        request(b"xy\r\n\r\n").lower(),
        request(b"xy\r\n\r\n")[:20],
        b"",
        b"\r\n\r\n",
    ):
        assert heads.find(other) is None, other


def test_what_was_not_one_whole_request_is_not_remembered() -> None:
    heads = Heads()
    heads.remember(request(b"ab") + request(b"ab"), start_push, URL, 2)
    heads.remember(request(b"ab", b"x: " + b"y" * LONGEST), start_push, URL, 2)
    assert heads.find(request(b"ab")) is None
    assert heads.find(request(b"ab", b"x: " + b"y" * LONGEST)) is None


def test_heads_that_are_all_different_take_no_more_than_so_much_room() -> None:
    heads = Heads()
    for number in range(MOST + 1):
        heads.remember(request(b"ab", b"traceparent: %d" % number), start_push, URL, 2)
    assert heads.find(request(b"ab", b"traceparent: 0")) is None
    assert heads.find(request(b"ab", b"traceparent: %d" % MOST)) is not None


def test_what_tokens_guard_and_what_never_comes_again_is_read_every_time() -> None:
    for url, start in (
        (b"/dlq-status", status_of(b"/dlq-status")),
        (b"/api/v1/tasks/0001-1/ack", post_of(b"/api/v1/tasks/0001-1/ack")),
    ):
        assert start is not None
        assert not may_be_remembered(url, start)
    for url, start in ((URL, post_of(URL)), (b"/api/v1/pop/queue/q", pop_of(b"/api/v1/pop/queue/q"))):
        assert start is not None
        assert may_be_remembered(url, start)
