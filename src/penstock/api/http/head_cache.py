"""Cache of parsed request heads.

A producer or consumer repeats the same head, byte for byte, with bodies of the same length. The result of
parsing a head is therefore stored and looked up when the same bytes arrive again.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.api.http.reply import Handler
from penstock.caller import Caller

HEAD_END = b"\r\n\r\n"
MAX_HEAD_BYTES, MAX_HEADS = 1_000, 4_096


class CachedHead(NamedTuple):
    """The handler, caller and URL of a head, and the length of the body that follows it."""

    handler: Handler
    caller: Caller
    """Checked when the head was parsed. It becomes inactive when its token is revoked or expires."""
    url: bytes
    body_length: int


class RequestHeadCache:
    """Bounded by `max_heads`; a full cache is emptied."""

    def __init__(self, max_heads: int = MAX_HEADS) -> None:
        self._max_heads = max_heads
        self._heads: dict[bytes, CachedHead] = {}

    def find(self, data: bytes) -> tuple[CachedHead, bytes] | None:
        """The known head and the body, if `data` is exactly one request, of a caller that is active."""
        end = data.find(HEAD_END) + len(HEAD_END)
        cached_head = self._heads.get(data[:end])
        if cached_head is None or not cached_head.caller.active or len(data) != end + cached_head.body_length:
            return None
        return cached_head, data[end:]

    def add(self, data: bytes, handler: Handler, caller: Caller, url: bytes, body_length: int) -> None:
        """Store the head of `data`, unless the head is too long or `data` is not exactly one request."""
        head = data[: data.find(HEAD_END) + len(HEAD_END)]
        if len(head) <= MAX_HEAD_BYTES and len(data) == len(head) + body_length:
            if len(self._heads) >= self._max_heads:
                self._heads.clear()
            self._heads[head] = CachedHead(handler, caller, url, body_length)
