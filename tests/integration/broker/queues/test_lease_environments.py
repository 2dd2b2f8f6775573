"""A lease of another environment is answered like a lost lease, and its messages do not change."""

from __future__ import annotations

import uuid

import pytest

from penstock.broker.broker import Broker
from penstock.broker.messages import Ack, AckReceipt, MessageLease, NewMessage, PopResult
from penstock.broker.overload.load import Decision
from penstock.broker.queues.pop import PopOptions
from penstock.caller import ALL_ACCESS, Caller
from penstock.errors import TransactionFailed
from penstock.model import Scope
from tests.integration.environments import create_environment

OURS = Caller(Scope("acme", "shop", "production"), ALL_ACCESS, "token:ours", token_number=3)
THEIRS = Caller(Scope("acme", "shop", "staging"), ALL_ACCESS, "token:theirs", token_number=4)


async def pop_message_of(broker: Broker, caller: Caller) -> PopResult:
    await create_environment(broker.database, caller.environment)
    await broker.push(caller.environment, [NewMessage("q", "Default", b'"payload"')])
    popped = await broker.pop(caller, "q", "g", PopOptions())
    assert len(popped.messages) == 1
    return popped


def read_lease(popped: PopResult) -> MessageLease:
    lease = MessageLease.parse(popped.lease)
    assert lease is not None
    return lease


def ack_of(popped: PopResult, lease: MessageLease, status: str = "completed") -> Ack:
    [message] = popped.messages
    return Ack(message.partition_id, *lease, message.transaction_id, status)


def forged_lease(popped: PopResult) -> MessageLease:
    """A lease id that OURS could have got, with the group of another environment."""
    return MessageLease(read_lease(popped).group_id, OURS.lease_prefix + str(uuid.uuid4())[19:])


async def test_a_lease_id_begins_with_its_environment_and_its_token(broker: Broker) -> None:
    lease = read_lease(await pop_message_of(broker, OURS))
    assert lease.lease_id.startswith(OURS.lease_prefix)
    assert lease.is_of(OURS.environment)
    assert not lease.is_of(THEIRS.environment)
    assert uuid.UUID(lease.lease_id).int >> 64 & 0xFFFFFFFF == 3


@pytest.mark.parametrize("status", ["completed", "failed", "retry", "dlq"])
@pytest.mark.parametrize("decision", [Decision.EXECUTE, Decision.DEFER])
async def test_acks_of_a_foreign_lease_are_answered_like_those_of_a_lost_one(
    broker: Broker, status: str, decision: Decision
) -> None:
    theirs = await pop_message_of(broker, THEIRS)
    await pop_message_of(broker, OURS)
    acks = [ack_of(theirs, read_lease(theirs), status), ack_of(theirs, forged_lease(theirs), status)]
    receipts = await broker.ack(OURS.environment, acks, decision)
    assert receipts == [AckReceipt("lease_lost")] * 2, "also no name of the other environment"
    [receipt] = await broker.ack(THEIRS.environment, [ack_of(theirs, read_lease(theirs))])
    assert receipt.outcome == "completed"


async def test_a_foreign_lease_cannot_be_extended(broker: Broker) -> None:
    theirs = await pop_message_of(broker, THEIRS)
    assert await broker.extend(OURS.environment, read_lease(theirs), 600_000) is None
    assert await broker.extend(THEIRS.environment, read_lease(theirs), 600_000) is not None


async def test_a_transaction_with_a_foreign_lease_fails_and_changes_nothing(broker: Broker) -> None:
    theirs = await pop_message_of(broker, THEIRS)
    with pytest.raises(TransactionFailed) as failed:
        await broker.transaction(OURS.environment, [], [ack_of(theirs, read_lease(theirs))])
    assert failed.value.reason == "lease_lost"
    await broker.transaction(THEIRS.environment, [], [ack_of(theirs, read_lease(theirs))])


async def test_required_leases_of_another_environment_hold_nothing(broker: Broker) -> None:
    theirs, ours = await pop_message_of(broker, THEIRS), await pop_message_of(broker, OURS)
    partition_ids = [theirs.messages[0].partition_id, ours.messages[0].partition_id]
    leases = [read_lease(theirs), read_lease(ours)]
    assert await broker.acks.find_leases(OURS.environment, partition_ids, leases) == {
        partition_ids[1]: leases[1]
    }
