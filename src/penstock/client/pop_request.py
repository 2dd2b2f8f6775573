"""The parameters of a pop and their URL."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from urllib.parse import quote, urlencode

Subscription = Literal["all", "new"] | datetime
"""Start of a new group: all kept messages, new messages only, or messages since a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyQueue:
    """Any queue of a namespace, of a task, or of both, that has messages."""

    namespace: str | None = None
    task: str | None = None

    def __post_init__(self) -> None:
        if not self.namespace and not self.task:
            raise ValueError("AnyQueue needs a namespace, a task, or both.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PopRequest:
    source: str | AnyQueue
    batch: int
    partition: str | None
    partitions: int
    group: str | None
    wait_s: float
    """Time to wait for the first message; 0: do not wait."""
    auto_ack: bool
    subscription: Subscription | None

    @property
    def path(self) -> str:
        parameters: dict[str, str] = {}
        if isinstance(self.source, AnyQueue):
            if self.partition is not None:
                raise ValueError("A partition needs a queue name instead of AnyQueue.")
            path = "/api/v1/pop"
            parameters |= {k: v for k in ("namespace", "task") if (v := getattr(self.source, k))}
        else:
            path = f"/api/v1/pop/queue/{quote(self.source, safe='')}"
            if self.partition is not None:
                path += f"/partition/{quote(self.partition)}"
        parameters["batch"] = str(self.batch)
        if self.partitions != 1:
            parameters["partitions"] = str(self.partitions)
        if self.group is not None:
            parameters["consumerGroup"] = self.group
        if self.wait_s > 0:
            parameters |= {"wait": "true", "timeout": str(round(self.wait_s * 1000))}
        if self.auto_ack:
            parameters["autoAck"] = "true"
        if isinstance(self.subscription, datetime):
            parameters["subscriptionFrom"] = self.subscription.isoformat()
        elif self.subscription is not None:
            parameters["subscriptionMode"] = self.subscription
        return f"{path}?{urlencode(parameters)}"
