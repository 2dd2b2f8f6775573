"""The cache of request heads: only identical heads with a complete body match."""

from __future__ import annotations

from penstock.api.http.fast_routes import dlq_status_route, is_cacheable, pop_route, post_route
from penstock.api.http.head_cache import MAX_HEAD_BYTES, RequestHeadCache
from penstock.api.routes.push_pop import push
from penstock.caller import ALL_ACCESS, LOCAL_CALLER, Caller
from penstock.model import DEFAULT_SCOPE

URL = b"/api/v1/push"


def request(body: bytes, *headers: bytes) -> bytes:
    lines = [b"POST " + URL + b" HTTP/1.1", b"content-length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def test_only_an_identical_head_with_a_complete_body_is_found() -> None:
    cache = RequestHeadCache()
    cache.add(request(b"ab\r\n\r\n"), push, LOCAL_CALLER, URL, 6)
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
    cache.add(request(b"ab") + request(b"ab"), push, LOCAL_CALLER, URL, 2)
    cache.add(request(b"ab", long_header), push, LOCAL_CALLER, URL, 2)
    assert cache.find(request(b"ab")) is None
    assert cache.find(request(b"ab", long_header)) is None


def test_a_full_cache_is_emptied() -> None:
    cache = RequestHeadCache(max_heads=10)
    for number in range(11):
        cache.add(request(b"ab", b"traceparent: %d" % number), push, LOCAL_CALLER, URL, 2)
    assert cache.find(request(b"ab", b"traceparent: 0")) is None
    assert cache.find(request(b"ab", b"traceparent: 10")) is not None


def test_the_head_of_an_inactive_caller_is_not_found() -> None:
    cache = RequestHeadCache()
    caller = Caller(DEFAULT_SCOPE, ALL_ACCESS, "token:ci")
    cache.add(request(b"ab"), push, caller, URL, 2)
    assert cache.find(request(b"ab")) is not None
    caller.active = False
    assert cache.find(request(b"ab")) is None


def test_only_requests_that_clients_repeat_are_cacheable() -> None:
    for url, route, is_repeated in (
        (b"/dlq-status", dlq_status_route(b"/dlq-status"), False),
        (b"/api/v1/tasks/0001-1/ack", post_route(b"/api/v1/tasks/0001-1/ack"), False),
        (URL, post_route(URL), True),
        (b"/api/v1/pop/queue/q", pop_route(b"/api/v1/pop/queue/q"), True),
    ):
        assert route is not None
        assert is_cacheable(url, route.handler) is is_repeated
