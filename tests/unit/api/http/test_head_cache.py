"""The cache of request heads: only identical heads with a complete body match."""

from __future__ import annotations

from penstock.api.http.fast_routes import dlq_status_handler, is_cacheable, pop_handler, post_handler
from penstock.api.http.head_cache import MAX_HEAD_BYTES, RequestHeadCache
from penstock.api.routes.push_pop import push

URL = b"/api/v1/push"


def request(body: bytes, *headers: bytes) -> bytes:
    lines = [b"POST " + URL + b" HTTP/1.1", b"content-length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def test_only_an_identical_head_with_a_complete_body_is_found() -> None:
    cache = RequestHeadCache()
    cache.add(request(b"ab\r\n\r\n"), push, URL, 6)
    cache_hit = cache.find(request(b"xy\r\n\r\n"))
    assert cache_hit is not None
    cached_head, body = cache_hit
    assert (cached_head.handler, cached_head.url, body) == (push, URL, b"xy\r\n\r\n")
    for data in (
        request(b"xy\r\n\r\n")[:-1],
        request(b"xy\r\n\r\n") + b"P",
        request(b"abcde"),
        request(b"xy\r\n\r\n", b"connection: close"),
        request(b"xy\r\n\r\n").lower(),
        request(b"xy\r\n\r\n")[:20],
        b"",
        b"\r\n\r\n",
    ):
        assert cache.find(data) is None, data


def test_two_requests_at_once_and_long_heads_are_not_cached() -> None:
    cache = RequestHeadCache()
    long_header = b"x: " + b"y" * MAX_HEAD_BYTES
    cache.add(request(b"ab") + request(b"ab"), push, URL, 2)
    cache.add(request(b"ab", long_header), push, URL, 2)
    assert cache.find(request(b"ab")) is None
    assert cache.find(request(b"ab", long_header)) is None


def test_a_full_cache_is_emptied() -> None:
    cache = RequestHeadCache(max_heads=10)
    for number in range(11):
        cache.add(request(b"ab", b"traceparent: %d" % number), push, URL, 2)
    assert cache.find(request(b"ab", b"traceparent: 0")) is None
    assert cache.find(request(b"ab", b"traceparent: 10")) is not None


def test_guarded_and_unrepeated_requests_are_not_cacheable() -> None:
    for url, handler in (
        (b"/dlq-status", dlq_status_handler(b"/dlq-status")),
        (b"/api/v1/tasks/0001-1/ack", post_handler(b"/api/v1/tasks/0001-1/ack")),
    ):
        assert handler is not None
        assert not is_cacheable(url, handler)
    for url, handler in (
        (URL, post_handler(URL)),
        (b"/api/v1/pop/queue/q", pop_handler(b"/api/v1/pop/queue/q")),
    ):
        assert handler is not None
        assert is_cacheable(url, handler)
