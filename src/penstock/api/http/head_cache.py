"""Request heads that were read before.

A producer or consumer sends the same head again and again, byte for byte but for the length of its body. What
a parser made of it the first time holds every time, so it is looked up instead.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.api.http.reply import Start

END = b"\r\n\r\n"
LONGEST, MOST = 1_000, 4_096


class Seen(NamedTuple):
    """What a head asks for; its body has `length` bytes."""

    start: Start
    url: bytes
    length: int


class Heads:
    def __init__(self) -> None:
        self._seen: dict[bytes, Seen] = {}

    def find(self, data: bytes) -> tuple[Seen, bytes] | None:
        """What is asked for, and the body, if the data is one whole request with a known head."""
        end = data.find(END) + len(END)
        seen = self._seen.get(data[:end])
        if seen is None or len(data) != end + seen.length:
            return None
        return seen, data[end:]

    def remember(self, data: bytes, start: Start, url: bytes, length: int) -> None:
        """The data was one whole request, and this is what it asked for."""
        head = data[: data.find(END) + len(END)]
        if len(head) <= LONGEST and len(data) == len(head) + length:
            if len(self._seen) >= MOST:
                self._seen.clear()
            self._seen[head] = Seen(start, url, length)
