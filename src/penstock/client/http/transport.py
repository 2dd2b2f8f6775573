"""Send requests to one of several brokers and retry them where that is safe.

A connection that could not be opened, and a 429, changed nothing. After a lost connection, a timeout, a 502,
503 or 504 the outcome is unknown: the request may have taken effect. The transport retries such a request
only if its caller declares it repeatable.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec

from penstock.client.errors import (
    ApiError,
    ClientError,
    NoAnswer,
    Overloaded,
    ServerFault,
    Unavailable,
    api_error,
)
from penstock.client.http.connections import BrokerEndpoint, ConnectionLost, RequestCancellation, Unreachable
from penstock.client.settings import ClientSettings

if TYPE_CHECKING:
    from penstock.client.tracing.spans import Tracing

T = TypeVar("T")

logger = logging.getLogger("penstock.client")

TOKEN_VARIABLE = "PENSTOCK_TOKEN"
MAX_BACKOFF_EXPONENT = 60
"""A consumer may retry for days; this keeps the backoff within the range of a float."""


@dataclass(frozen=True, slots=True)
class BrokerResponse:
    status: int
    body: bytes
    uncertain: bool
    """An earlier attempt of the same request may have taken effect."""

    def read(self, decoder: msgspec.json.Decoder[T]) -> T:
        """Decode the body. Raises ServerFault if it is not the response of a broker."""
        try:
            return decoder.decode(self.body)
        except msgspec.DecodeError as error:
            detail = f"Cannot read the response ({self.status}). Is this a Penstock broker? {error}"
            title = "Unreadable response"
            raise ServerFault(
                detail, status=self.status, code="unreadable_answer", title=title, uncertain=True
            ) from None


def retry_delay_s(
    attempt: int, settings: ClientSettings, retry_after_s: float | None, jitter: float
) -> float:
    """Return the delay before an attempt (2 is the first retry). `jitter` is a random number from 0 to 1.

    The whole backoff is random, so that clients that failed together do not return together. `Retry-After`
    is the minimum; the backoff, or a quarter of `Retry-After`, is added to it.
    """
    max_delay_s = settings.max_retry_delay_s
    backoff_s = settings.retry_delay_s * settings.retry_backoff ** min(attempt - 2, MAX_BACKOFF_EXPONENT)
    if retry_after_s is None or not settings.honor_retry_after:
        return min(backoff_s, max_delay_s) * jitter
    min_delay_s = min(retry_after_s, max_delay_s)
    return min_delay_s + max(min(backoff_s, max_delay_s - min_delay_s), min_delay_s / 4) * jitter


class Transport:
    """The brokers of a client. It uses one until that fails, then the next, in turn."""

    def __init__(
        self,
        urls: str | Sequence[str],
        settings: ClientSettings,
        token: str | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        urls = [urls] if isinstance(urls, str) else urls
        token = token or os.environ.get(TOKEN_VARIABLE)
        self._endpoints = [BrokerEndpoint(url, settings.tls, token, tracing) for url in urls]
        if not self._endpoints:
            raise ValueError("The client needs at least one broker URL, such as http://127.0.0.1:7480.")
        self.settings = settings
        self.tracing = tracing
        """None without OpenTelemetry."""
        self._current = random.randrange(len(self._endpoints))  # spread clients over the brokers

    def close(self) -> None:
        for endpoint in self._endpoints:
            endpoint.close()

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        repeatable: bool = True,
        wait_s: float = 0.0,
        accept: Callable[[int], bool] = lambda status: status < 400,
        cancellation: RequestCancellation | None = None,
    ) -> BrokerResponse:
        """Send a request, with as many attempts as the settings allow, and return the response.

        `repeatable`: executing it twice has the effect of once. `wait_s`: the wait that the request asks for.
        """
        settings = self.settings
        started = time.monotonic()
        uncertain = False
        attempt = 1
        while True:
            endpoint = self._endpoints[self._current]
            error: ClientError
            try:
                timeout_s = settings.request_timeout_s + wait_s
                response = await endpoint.request(
                    method, path, body, settings.connect_timeout_s, timeout_s, cancellation
                )
            except Unreachable as cause:
                error = NoAnswer(f"Cannot reach {endpoint.url}: {cause}")
                error.__cause__ = cause
            except ConnectionLost as cause:
                error = NoAnswer(f"No response from {endpoint.url}: {cause}", uncertain=True)
                error.__cause__ = cause
            else:
                if accept(response.status):
                    return BrokerResponse(response.status, response.body, uncertain)
                error = api_error(response.status, response.body, response.headers.get(b"retry-after"))
                error.uncertain = isinstance(error, Unavailable)
            outcome_unknown = error.uncertain
            uncertain = error.uncertain = uncertain or error.uncertain
            is_final = cancellation is not None and cancellation.is_final_attempt
            if is_final or not self._should_retry(error) or (outcome_unknown and not repeatable):
                raise error
            retry_after_s = error.retry_after_s if isinstance(error, ApiError) else None
            attempt += 1
            delay_s = retry_delay_s(attempt, settings, retry_after_s, random.random())
            is_late = time.monotonic() + delay_s - started > settings.max_retry_time_s
            if attempt > settings.retry_attempts or is_late:
                raise error
            if not isinstance(error, Overloaded):
                self._use_next_after(endpoint)
            logger.info("%s %s failed: %s Retrying in %.1f s.", method, path, error, delay_s)
            await asyncio.sleep(delay_s)

    def _should_retry(self, error: ClientError) -> bool:
        if isinstance(error, Overloaded):
            return self.settings.retry_on_429
        return isinstance(error, NoAnswer | Unavailable)

    def _use_next_after(self, endpoint: BrokerEndpoint) -> None:
        """Use the next broker, unless another request has already switched."""
        if self._endpoints[self._current] is endpoint:
            self._current = (self._current + 1) % len(self._endpoints)
