"""What a pop asks for, and the URL that says so."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from urllib.parse import quote, urlencode

Subscription = Literal["all", "new"] | datetime
"""Where a new group starts: with everything kept, with what comes from now on, or at a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyQueue:
    """Whichever queue of a namespace, of a task, or of both has something."""

    namespace: str | None = None
    task: str | None = None

    def __post_init__(self) -> None:
        if not self.namespace and not self.task:
            raise ValueError("name a namespace, a task, or both")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pop:
    source: str | AnyQueue
    batch: int
    partition: str | None
    partitions: int
    group: str | None
    wait_s: float
    """How long to wait for the first message; 0: not at all."""
    auto_ack: bool
    subscription: Subscription | None

    @property
    def path(self) -> str:
        asked: dict[str, str] = {}
        if isinstance(self.source, AnyQueue):
            if self.partition is not None:
                raise ValueError("a partition belongs to a queue: name the queue to pop it from")
            path = "/api/v1/pop"
            asked |= {k: v for k in ("namespace", "task") if (v := getattr(self.source, k))}
        else:
            path = f"/api/v1/pop/queue/{quote(self.source, safe='')}"
            if self.partition is not None:
                path += f"/partition/{quote(self.partition)}"
        asked["batch"] = str(self.batch)
        if self.partitions != 1:
            asked["partitions"] = str(self.partitions)
        if self.group is not None:
            asked["consumerGroup"] = self.group
        if self.wait_s > 0:
            asked |= {"wait": "true", "timeout": str(round(self.wait_s * 1000))}
        if self.auto_ack:
            asked["autoAck"] = "true"
        if isinstance(self.subscription, datetime):
            asked["subscriptionFrom"] = self.subscription.isoformat()
        elif self.subscription is not None:
            asked["subscriptionMode"] = self.subscription
        return f"{path}?{urlencode(asked)}"
