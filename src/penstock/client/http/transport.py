"""Requests to one of several brokers, repeated where that is safe.

What decides is what may have happened. A connection that was never made, and a 429, changed nothing. A
connection that broke before the answer, a timeout, a 502, 503 or 504 leave it open: the request may have been
carried out. Such a request is repeated only if its caller says that doing it twice is like doing it once.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from penstock.client.errors import (
    ApiError,
    ClientError,
    NoAnswer,
    Overloaded,
    Problem,
    ServerFault,
    Unavailable,
)
from penstock.client.http.connections import Broken, Parting, Place, Unreachable
from penstock.client.settings import ClientSettings

T = TypeVar("T")

logger = logging.getLogger("penstock.client")


LARGEST_POWER = 60
"""Of the backoff: a consumer may try for days, and a float does not hold every number."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    uncertain: bool
    """Whether an earlier attempt of the same request may have been carried out."""

    def read(self, decoder: msgspec.json.Decoder[T]) -> T:
        """The decoded body; ServerFault if it is not what a broker answers."""
        try:
            return decoder.decode(self.body)
        except msgspec.DecodeError as error:
            detail = f"the answer ({self.status}) cannot be read, is this a Penstock broker? {error}"
            title = "The answer cannot be read"
            raise ServerFault(
                detail, status=self.status, code="unreadable_answer", title=title, uncertain=True
            ) from None


def delay_before(attempt: int, settings: ClientSettings, asked_s: float | None, chance: float) -> float:
    """How long to wait before an attempt (2 is the first repetition). `chance` is drawn from 0 to 1.

    All of the grown delay is left to chance, so that clients that failed together do not return together.
    What the broker asks for is the least; the delay, or a quarter of what was asked for, comes on top.
    """
    longest = settings.max_retry_delay_s
    grown = settings.retry_delay_s * settings.retry_backoff ** min(attempt - 2, LARGEST_POWER)
    if asked_s is None or not settings.honor_retry_after:
        return min(grown, longest) * chance
    least = min(asked_s, longest)
    return least + max(min(grown, longest - least), least / 4) * chance


class Transport:
    """Connections to the brokers. One is used until it fails; then the next one, in turn."""

    def __init__(self, urls: str | Sequence[str], settings: ClientSettings) -> None:
        self._places = [Place(url) for url in ([urls] if isinstance(urls, str) else urls)]
        if not self._places:
            raise ValueError("name at least one broker, such as http://127.0.0.1:7480")
        self.settings = settings
        self._at = random.randrange(len(self._places))  # so that many clients do not all choose the first

    def close(self) -> None:
        for place in self._places:
            place.close()

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        repeatable: bool = True,
        wait_s: float = 0.0,
        accept: Callable[[int], bool] = lambda status: status < 400,
        parting: Parting | None = None,
    ) -> Answer:
        """The answer to a request, after as many attempts as the settings allow.

        `repeatable`: doing it twice is like doing it once. `wait_s`: how long the broker was asked to wait.
        """
        settings = self.settings
        started = time.monotonic()
        uncertain = False
        attempt = 1
        while True:
            place = self._places[self._at]
            error: ClientError
            try:
                answer_s = settings.request_timeout_s + wait_s
                response = await place.request(
                    method, path, body, settings.connect_timeout_s, answer_s, parting
                )
            except Unreachable as cause:
                error = NoAnswer(f"{place.url} cannot be reached: {cause}")
                error.__cause__ = cause
            except Broken as cause:
                error = NoAnswer(f"{place.url} did not answer: {cause}", uncertain=True)
                error.__cause__ = cause
            else:
                if accept(response.status):
                    return Answer(response.status, response.body, uncertain)
                error = Problem.of(response.status, response.body, response.headers.get(b"retry-after"))
                error.uncertain = isinstance(error, Unavailable)
            open_still = error.uncertain
            uncertain = error.uncertain = uncertain or error.uncertain
            last = parting is not None and parting.last
            if last or not self._may_repeat(error) or (open_still and not repeatable):
                raise error
            asked_s = error.retry_after_s if isinstance(error, ApiError) else None
            attempt += 1
            delay = delay_before(attempt, settings, asked_s, random.random())
            late = time.monotonic() + delay - started > settings.max_retry_time_s
            if attempt > settings.retry_attempts or late:
                raise error
            if not isinstance(error, Overloaded):
                self._turn_away_from(place)
            logger.info("%s %s: %s; again in %.1f s", method, path, error, delay)
            await asyncio.sleep(delay)

    def _may_repeat(self, error: ClientError) -> bool:
        if isinstance(error, Overloaded):
            return self.settings.retry_on_429
        return isinstance(error, NoAnswer | Unavailable)

    def _turn_away_from(self, place: Place) -> None:
        """Use the next broker, unless another request has turned away already."""
        if self._places[self._at] is place:
            self._at = (self._at + 1) % len(self._places)
