"""The URL of a pop."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.client import AnyQueue
from penstock.client.pop_request import PopRequest


def pop_path(source: str | AnyQueue, **parameters: Any) -> str:
    return PopRequest(source, **parameters).path


def test_default_parameters_are_left_out() -> None:
    assert pop_path("orders") == "/api/v1/pop/queue/orders?batch=1"


def test_all_parameters_are_encoded() -> None:
    path = pop_path(
        "a b",
        batch=5,
        partition="x/ü",
        partitions=3,
        group="g&h",
        wait_s=1.5,
        auto_ack=True,
        subscription=datetime(2026, 1, 1, tzinfo=UTC),
    )
    assert path == (
        "/api/v1/pop/queue/a%20b/partition/x/%C3%BC?batch=5&partitions=3&consumerGroup=g%26h"
        "&wait=true&timeout=1500&autoAck=true&subscriptionFrom=2026-01-01T00%3A00%3A00%2B00%3A00"
    )


def test_a_pop_of_any_queue_takes_no_partition() -> None:
    path = pop_path(AnyQueue(task="t"), subscription="new")
    assert path == "/api/v1/pop?task=t&batch=1&subscriptionMode=new"
    with pytest.raises(ValueError, match="A partition needs a queue name"):
        pop_path(AnyQueue(namespace="n"), partition="p")
    with pytest.raises(ValueError, match="needs a namespace, a task, or both"):
        AnyQueue()
