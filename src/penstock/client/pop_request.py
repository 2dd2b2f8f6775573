"""The parameters of a pop and their URL."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Literal, TypedDict
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


class PopOptions(TypedDict, total=False):
    """What to pop, as keyword arguments of `pop` and `consume`. `PopRequest` has the defaults."""

    batch: int
    """Maximum number of messages."""
    partition: str | None
    """Only this partition."""
    partitions: int
    """Maximum number of partitions that the messages come from."""
    group: str | None
    """Consumer group. Default: queue mode."""
    subscription: Subscription | None


@dataclass(frozen=True, slots=True)
class PopRequest:
    source: str | AnyQueue
    _: KW_ONLY
    batch: int = 1
    partition: str | None = None
    partitions: int = 1
    group: str | None = None
    subscription: Subscription | None = None
    wait_s: float = 0.0
    """Time to wait for the first message; 0: do not wait."""
    auto_ack: bool = False

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
