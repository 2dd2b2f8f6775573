"""Answers that never arrive, and brokers that are away: what is repeated, and what is said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from penstock.client import (
    Client,
    ClientSettings,
    LeaseLost,
    Message,
    NewMessage,
    NoAnswer,
    TransactionFailed,
)
from tests.integration.client.served import QUICK, Line


@pytest_asyncio.fixture
async def line(broker_url: str) -> AsyncIterator[Line]:
    async with Line(broker_url) as opened:
        yield opened


@pytest_asyncio.fixture
async def far(line: Line) -> AsyncIterator[Client]:
    """A client at the other end of the line."""
    async with Client(line.url, QUICK) as opened:
        yield opened


async def test_a_push_whose_answer_is_lost_is_there_once(
    client: Client, far: Client, line: Line, queue: str
) -> None:
    line.lose_answers(2)
    results = await far.push_many(NewMessage(queue, n) for n in range(3))
    assert line.lost == 2
    assert [result.status for result in results] == ["queued"] * 3
    popped = await client.pop(queue, batch=10)
    assert [message.data for message in popped] == [0, 1, 2]
    assert [message.id for message in popped] == [result.message_id for result in results]


async def test_a_duplicate_of_ones_own_ids_is_told_as_what_it_is(far: Client, line: Line, queue: str) -> None:
    line.lose_answers()
    assert (await far.push(queue, 1, transaction_id="mine")).status == "duplicate"


async def test_without_ids_a_push_that_may_have_arrived_is_not_repeated(
    client: Client, line: Line, queue: str
) -> None:
    async with Client(line.url, ClientSettings(make_transaction_ids=False)) as careless:
        line.lose_answers()
        with pytest.raises(NoAnswer) as lost:
            await careless.push(queue, 1)
        assert lost.value.uncertain
    assert [message.data for message in await client.pop(queue, batch=10)] == [1]


async def test_an_ack_whose_answer_is_lost_may_have_worked(
    client: Client, far: Client, line: Line, queue: str
) -> None:
    await far.push_many(NewMessage(queue, n) for n in range(3))
    one, *others = await far.pop(queue, batch=3)
    line.lose_answers()
    with pytest.raises(LeaseLost) as lost:
        await far.ack(one)
    assert lost.value.uncertain
    line.lose_answers()
    assert [(r.success, r.uncertain) for r in await far.ack_many(others)] == [(False, True), (False, True)]
    assert await client.pop(queue, batch=3) == []


async def test_a_transaction_whose_answer_is_lost_happened_once(
    client: Client, far: Client, line: Line, queue: str
) -> None:
    await far.push(queue, "in")
    [message] = await far.pop(queue)
    line.lose_answers()
    with pytest.raises(TransactionFailed) as lost:
        await far.transaction().ack(message).push(f"{queue}-out", 1).commit()
    assert (lost.value.uncertain, lost.value.step) == (True, 0)
    line.lose_answers()
    repeated = await far.transaction().push(f"{queue}-out", 2).commit()
    assert [step.duplicate for step in repeated.results] == [True]
    assert [message.data for message in await client.pop(f"{queue}-out", batch=9)] == [1, 2]


async def test_a_pop_whose_answer_is_lost_comes_again_after_its_lease(
    far: Client, line: Line, queue: str
) -> None:
    await far.configure(queue, {"leaseTime": 0.5})
    await far.push_many(NewMessage(queue, n) for n in range(2))
    line.lose_answers()
    popped = await far.pop(queue, batch=2, wait=True, timeout_s=30)
    assert line.lost == 1
    assert [message.data for message in popped] == [0]  # one at a time after a lease that nobody settled


async def test_a_pop_for_good_whose_answer_is_lost_is_not_repeated(
    far: Client, line: Line, queue: str
) -> None:
    await far.push_many(NewMessage(queue, n) for n in range(2))
    line.lose_answers()
    with pytest.raises(NoAnswer) as lost:
        await far.pop(queue, auto_ack=True)
    assert lost.value.uncertain
    assert [message.data for message in await far.pop(queue, auto_ack=True)] == [1]


async def test_a_consumer_gets_everything_over_a_line_that_loses_answers(
    far: Client, line: Line, queue: str
) -> None:
    await far.configure(queue, {"leaseTime": 1})
    count = 20
    handled: list[int] = []
    complete = asyncio.Event()

    async def handle(message: Message) -> None:
        handled.append(message.data)
        if message.data % 7 == 0:
            line.lose_answers()
        if set(handled) == set(range(count)):
            complete.set()

    async with far.buffered(queue, size=3) as buffer:
        for n in range(count):
            await buffer.push(n)
            if n % 5 == 0:
                line.lose_answers()
    async with far.consume(queue, handle, batch=4):
        await asyncio.wait_for(complete.wait(), 60)
    assert line.lost >= 5
    firsts = list(dict.fromkeys(handled))
    assert firsts == list(range(count))
