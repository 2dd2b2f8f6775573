"""An empty Redis database of its own for every test."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

from redis import Redis


class RedisDatabases:
    """The numbered databases of a Redis server."""

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        with Redis.from_url(server_url) as client:
            count = int(client.config_get("databases")["databases"])
        self._free_numbers = deque(range(count))

    @contextmanager
    def reserve(self) -> Iterator[str]:
        """Yield the URL of an empty database that is not reserved again before the end of the block.

        The database that was released longest ago is next, so a late write of an earlier test does no harm.
        """
        number = self._free_numbers.popleft()
        url = urlunsplit(urlsplit(self._server_url)._replace(path=f"/{number}"))
        with Redis.from_url(url) as client:
            client.flushdb()
        try:
            yield url
        finally:
            self._free_numbers.append(number)
