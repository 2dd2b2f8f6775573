"""Settings of a client: retries, timeouts, deferred operations."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    retry_on_429: bool = True
    """Retry when the broker is overloaded or the queue is full."""

    honor_retry_after: bool = True
    """Wait at least as long as `Retry-After` says."""

    retry_attempts: int = 8
    """Maximum number of attempts of a request, including the first."""

    retry_delay_s: float = 0.1
    """Upper bound of the random delay before the second attempt."""

    retry_backoff: float = 2.0
    """Factor by which that bound grows with each attempt."""

    max_retry_delay_s: float = 30.0
    """Maximum delay between two attempts."""

    max_retry_time_s: float = 60.0
    """No attempt starts later than this after the first."""

    connect_timeout_s: float = 5.0
    """Timeout of opening a connection."""

    request_timeout_s: float = 30.0
    """Timeout of a response. A waiting pop adds its wait time."""

    tls: ssl.SSLContext | None = None
    """TLS for `https` URLs; None: trust the CAs in the file of PENSTOCK_CA, else those of this machine."""

    make_transaction_ids: bool = True
    """Generate transaction ids for messages without one, so that pushes can be repeated safely."""

    queued_operation_behavior: Literal["return", "poll"] = "return"
    """A deferred push or ack returns at once, or polls until it is executed."""

    queued_operation_timeout_s: float = 30.0
    """Timeout of `poll`; after that the call returns with the operation still pending."""

    def __post_init__(self) -> None:
        if self.retry_attempts < 1:
            raise ValueError(f"retry_attempts must be 1 or more, not {self.retry_attempts}")
        if self.retry_backoff < 1:
            raise ValueError(f"retry_backoff must be 1 or more, not {self.retry_backoff}")
        for name in ("retry_delay_s", "max_retry_delay_s", "max_retry_time_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if self.queued_operation_behavior not in ("return", "poll"):
            raise ValueError(
                f"queued_operation_behavior must be return or poll, not {self.queued_operation_behavior!r}"
            )
        for name in ("connect_timeout_s", "request_timeout_s", "queued_operation_timeout_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than 0, not {getattr(self, name)}")
