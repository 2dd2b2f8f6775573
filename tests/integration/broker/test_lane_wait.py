"""Requests that are executed at once wait for the lanes of their partitions, and say when to retry."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest

from penstock.broker.broker import Broker
from penstock.broker.messages import NewMessage
from penstock.broker.overload.load import Decision
from penstock.errors import Overloaded
from penstock.model import DEFAULT_SCOPE
from tests.integration.broker.brokers import ack, pop, push


@pytest.mark.parametrize("request_kind", ["transaction", "requeue"])
async def test_a_request_that_waited_for_a_lane_is_refused_with_the_measured_wait(
    broker: Broker, request_kind: str
) -> None:
    [pushed] = await push(broker, "bad")
    await ack(broker, await pop(broker), "dlq")
    await broker.drain.stop()
    await broker.load.stop()  # its measurements stay as they are
    for payload in (b"1", b"2", b"3"):
        await broker.push(DEFAULT_SCOPE, [NewMessage("q", "Default", payload)], Decision.DEFER)
    broker.load._kinds["push"].drain_rate.value = 0.5
    broker.deferred_writes.lane_timeout_s = 0.1
    if request_kind == "transaction":
        work: Awaitable[object] = broker.transaction(DEFAULT_SCOPE, [NewMessage("q", "Default", b"4")], [])
    else:
        assert pushed.partition_id is not None
        assert pushed.transaction_id is not None
        work = broker.message_actions.retry(DEFAULT_SCOPE, pushed.partition_id, pushed.transaction_id, None)
    with pytest.raises(Overloaded) as refused:
        await work
    assert refused.value.retry_after_s == 8.0, "three operations wait, and one is executed in two seconds"
