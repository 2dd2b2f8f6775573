"""Read, delete, dead-letter and retry single messages on behalf of an operator."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from penstock.broker.context import BrokerContext
from penstock.broker.dead_letters.message_dead_letters import MessageDeadLetters
from penstock.broker.queues.admin import unknown_group
from penstock.durable.dead_letters.dead_letter_store import GroupDeadLetter
from penstock.durable.stored_messages import MessageContent, MessageState, PartitionRecord
from penstock.errors import (
    InvalidRequest,
    UnknownGroup,
    UnknownMessage,
    UnknownPartition,
    WrongState,
)
from penstock.model import QUEUE_MODE, Scope


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message with its state for each group. If retention dropped it, `row` is one of its dead letters."""

    location: PartitionRecord
    offset: int
    row: MessageContent | GroupDeadLetter
    states: list[MessageState]
    dead_letters: list[GroupDeadLetter]


class MessageActions:
    """Actions on single messages, identified by partition id and transaction id."""

    def __init__(self, context: BrokerContext, dead_letters: MessageDeadLetters) -> None:
        self._context = context
        self._dead_letters = dead_letters

    async def locate_partition(self, scope: Scope, partition_id: int) -> PartitionRecord:
        """Return the names of a partition and its queue. Raises UnknownPartition."""
        location = await self._context.store.messages.find_partition(scope, partition_id)
        if location is None:
            raise UnknownPartition(
                f"Partition {partition_id} does not exist. Use the partitionId of a push or pop result.",
                partitionId=str(partition_id),
            )
        return location

    async def get(self, scope: Scope, partition_id: int, transaction_id: str) -> StoredMessage:
        """Return a message. Raises UnknownMessage.

        Dead letters keep a copy of their message, so one that retention dropped is still found through them.
        """
        location = await self.locate_partition(scope, partition_id)
        dead_letters = await self._context.store.dead_letters.list_of_message(partition_id, transaction_id)
        offset = await self._context.store.messages.find_offset(partition_id, transaction_id)
        row: MessageContent | GroupDeadLetter | None = None
        states: list[MessageState] = []
        if offset is not None:
            row = await self._context.store.messages.read(partition_id, offset)
            states = await self._context.store.messages.list_states(partition_id, offset)
        if row is None:
            if not dead_letters:
                raise _unknown_message(transaction_id, location)
            row, offset = dead_letters[0], dead_letters[0].message_offset
        assert offset is not None
        return StoredMessage(location, offset, row, states, dead_letters)

    async def delete(self, scope: Scope, partition_id: int, transaction_id: str) -> PartitionRecord:
        """Delete a message with its payload and dead letters for every group. Order and ids stay."""
        location = await self.locate_partition(scope, partition_id)
        if not await self._context.store.messages.delete(partition_id, transaction_id):
            raise _unknown_message(transaction_id, location)
        self._context.metrics.mark_changed(scope, location.queue_id, location.queue)
        self._context.wakeups.notify(location.queue_id)
        return location

    async def declare_dead(
        self, scope: Scope, partition_id: int, transaction_id: str, group: str | None, error: str
    ) -> tuple[str, str]:
        """Move a message to the dead letters of a group.

        Returns the group's name and `dead`, `already_dead` or `discarded`. Without a group it is queue mode,
        or the only group of the queue.
        """
        location = await self.locate_partition(scope, partition_id)
        offset = await self._context.store.messages.find_offset(partition_id, transaction_id)
        if offset is None:
            raise _unknown_message(transaction_id, location)
        group_name, group_id = await self._find_group(location, group)
        outcome = await self._context.store.messages.declare_dead(partition_id, group_id, offset, error)
        if outcome == "gone":
            raise UnknownGroup(
                f"Consumer group {group_name!r} was deleted during the request.", group=group_name
            )
        if outcome == "finished":
            raise WrongState(
                f"Group {group_name!r} has already finished message {transaction_id!r}.", group=group_name
            )
        if outcome != "already_dead":
            self._context.metrics.count_dead(scope, location.queue_id, location.queue, group_name)
            self._context.wakeups.notify(location.queue_id)
        return group_name, outcome

    async def retry(
        self, scope: Scope, partition_id: int, transaction_id: str, group: str | None
    ) -> tuple[PartitionRecord, uuid.UUID]:
        """Push a dead message again for all groups; return its partition and its new id.

        With a group, only that group's dead letter is deleted.
        """
        location = await self.locate_partition(scope, partition_id)
        return location, await self._dead_letters.retry(scope, location, transaction_id, group)

    async def _find_group(self, location: PartitionRecord, group: str | None) -> tuple[str, int]:
        group_ids = await self._context.store.consumer_groups.ids_by_name(location.queue_id)
        if group is None:
            if QUEUE_MODE not in group_ids and len(group_ids) > 1:
                raise InvalidRequest(
                    f"Queue {location.queue!r} has several groups. Name one of them in consumerGroup.",
                    groups=list(group_ids),
                    field="consumerGroup",
                )
            group = next(iter(group_ids)) if len(group_ids) == 1 else QUEUE_MODE
        if group not in group_ids:
            raise unknown_group(group, location.queue)
        return group, group_ids[group]


def _unknown_message(transaction_id: str, location: PartitionRecord) -> UnknownMessage:
    return UnknownMessage(
        f"Partition {location.partition!r} of queue {location.queue!r} keeps no message {transaction_id!r}. "
        "It may have been deleted or dropped by retention.",
        transactionId=transaction_id,
    )
