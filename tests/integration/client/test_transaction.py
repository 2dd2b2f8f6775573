"""Transactions: all steps or none, and the step that failed."""

from __future__ import annotations

from contextlib import suppress

import pytest

from penstock.client import Client, Message, TransactionFailed


async def pop_one(client: Client, queue: str) -> Message:
    [message] = await client.pop(queue, wait=True, timeout_s=10)
    return message


async def test_pushes_and_acks_take_effect_together(client: Client, queue: str) -> None:
    await client.push(queue, "in")
    message = await pop_one(client, queue)
    out = f"{queue}-out"
    transaction = client.transaction().ack(message).push(out, 1, partition="a").push(out, 2, partition="a")
    result = await transaction.commit()
    assert [(step.type, step.success) for step in result.results] == [
        ("ack", True),
        ("push", True),
        ("push", True),
    ]
    assert await client.pop(queue) == []
    assert [m.data for m in await client.pop(out, batch=9)] == [1, 2]
    with pytest.raises(RuntimeError, match="already sent"):
        await transaction.commit()


async def test_a_block_commits_at_its_end_unless_it_raises(client: Client, queue: str) -> None:
    await client.push(queue, "in")
    message = await pop_one(client, queue)
    with suppress(KeyError):
        async with client.transaction() as abandoned:
            abandoned.ack(message).push(queue, "never")
            raise KeyError("abort")
    async with client.transaction() as transaction:
        transaction.dead_letter(message, "bad").push(queue, "after")
    async with client.transaction():
        pass  # without steps nothing is sent
    assert (await pop_one(client, queue)).data == "after"


async def test_the_error_has_the_failed_step_and_nothing_changes(client: Client, queue: str) -> None:
    await client.push(queue, "in")
    message = await pop_one(client, queue)
    await client.retry(message)  # its ack must fail now
    transaction = client.transaction().push(f"{queue}-out", 1).ack(message).push(f"{queue}-out", 2)
    with pytest.raises(TransactionFailed) as failed:
        await transaction.commit()
    error = failed.value
    assert (error.step, error.kind, error.code, error.status) == (1, "ack", "transaction_failed", 409)
    assert "lease" in error.reason
    assert not error.uncertain
    assert [step.success for step in error.results] == [False, False, False]
    assert await client.pop(f"{queue}-out") == []


async def test_the_result_marks_a_duplicate_push(client: Client, queue: str) -> None:
    await client.push(queue, 1, transaction_id="same")
    result = await client.transaction().push(queue, 1, transaction_id="same").push(queue, 2).commit()
    assert [step.duplicate for step in result.results] == [True, False]
    with pytest.raises(ValueError, match="no steps"):
        await client.transaction().commit()
