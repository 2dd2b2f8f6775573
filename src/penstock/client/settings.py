"""How a client behaves: when it tries again, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    retry_on_429: bool = True
    """Try again when the broker says that it has too much to do, or that the queue is full."""

    honor_retry_after: bool = True
    """Wait at least as long as the broker asks for in `Retry-After`."""

    retry_attempts: int = 8
    """How often a request is sent at most, the first time included."""

    retry_delay_s: float = 0.1
    """What the wait before the second attempt is drawn from: anything up to it."""

    retry_backoff: float = 2.0
    """By how much that grows from one attempt to the next."""

    max_retry_delay_s: float = 30.0
    """The longest wait between two attempts."""

    max_retry_time_s: float = 60.0
    """No attempt is begun later than this after the first."""

    connect_timeout_s: float = 5.0
    """How long making a connection may take."""

    request_timeout_s: float = 30.0
    """How long the broker may take to answer. A pop that waits gets its waiting time on top."""

    make_transaction_ids: bool = True
    """Give messages pushed without a transaction id one, so that pushes can be repeated without doubling."""

    queued_operation_behavior: Literal["return", "poll"] = "return"
    """What a push or ack does that the broker does later: return at once, or wait until it is done."""

    queued_operation_timeout_s: float = 30.0
    """How long `poll` waits. After that they return as they do at once: accepted, not done."""

    def __post_init__(self) -> None:
        if self.retry_attempts < 1:
            raise ValueError(f"retry_attempts must be 1 or more, not {self.retry_attempts}")
        if self.retry_backoff < 1:
            raise ValueError(f"retry_backoff must be 1 or more, not {self.retry_backoff}")
        for name in ("retry_delay_s", "max_retry_delay_s", "max_retry_time_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, not {getattr(self, name)}")
        if self.queued_operation_behavior not in ("return", "poll"):
            raise ValueError(
                f"queued_operation_behavior must be return or poll, not {self.queued_operation_behavior!r}"
            )
        for name in ("connect_timeout_s", "request_timeout_s", "queued_operation_timeout_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than 0, not {getattr(self, name)}")
