"""Single messages in an operator's hands: looked at, deleted, declared dead, pushed again."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from penstock.broker.context import BrokerContext
from penstock.broker.encryption import KeyMissing
from penstock.durable import consumer_groups, stored_messages
from penstock.durable.dead_letters import dead_letter_queries
from penstock.durable.stored_messages import Place
from penstock.errors import (
    InvalidRequest,
    Overloaded,
    QueueFull,
    UnknownGroup,
    UnknownMessage,
    UnknownPartition,
    WrongState,
)
from penstock.ids import new_id
from penstock.model import QUEUE_MODE, Scope


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as it is kept, or what its dead letters have kept of it, and what it is to each group."""

    location: Place
    offset: int
    row: Any
    states: list[Any]
    letters: list[Any]


@dataclass(frozen=True, slots=True)
class DecryptedPayload:
    """A payload as it was pushed; without the key it was sealed with, only why it cannot be told."""

    payload: bytes | None
    problem: str | None = None


class MessageActions:
    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def decrypt(self, payload: bytes) -> DecryptedPayload:
        """The payload decrypted. One that cannot be is told apart, so that it never hides its neighbours."""
        try:
            return DecryptedPayload(self._context.cipher.decrypt(payload))
        except KeyMissing as error:
            return DecryptedPayload(None, error.detail)

    async def locate_partition(self, scope: Scope, partition_id: int) -> Place:
        found = await stored_messages.place(self._context.database, scope, partition_id)
        if found is None:
            raise UnknownPartition(
                f"there is no partition with id {partition_id}", partitionId=str(partition_id)
            )
        return found

    async def get(self, scope: Scope, partition_id: int, transaction_id: str) -> StoredMessage:
        """The message, or UnknownMessage. One that retention has dropped lives on in its dead letters."""
        place = await self.locate_partition(scope, partition_id)
        letters = await dead_letter_queries.dead_letters_of(self._context.database, partition_id, transaction_id)
        offset = await stored_messages.find(self._context.database, partition_id, transaction_id)
        row = None
        states: list[Any] = []
        if offset is not None:
            row = await stored_messages.message(self._context.database, partition_id, offset)
            states = await stored_messages.states(self._context.database, partition_id, offset)
        if row is None:
            if not letters:
                raise _unknown(transaction_id, place)
            row, offset = letters[0], letters[0]["message_offset"]
        assert offset is not None
        return StoredMessage(place, offset, row, states, letters)

    async def delete(self, scope: Scope, partition_id: int, transaction_id: str) -> Place:
        """Take a message out for every group, with its payload and dead letters; order and ids stay."""
        place = await self.locate_partition(scope, partition_id)
        if not await stored_messages.delete(self._context.database, partition_id, transaction_id):
            raise _unknown(transaction_id, place)
        self._context.metrics.touched(scope, place.queue_id, place.queue)
        self._context.wakeups.notify(place.queue_id)
        return place

    async def declare_dead(
        self, scope: Scope, partition_id: int, transaction_id: str, group: str | None, error: str
    ) -> tuple[str, str]:
        """Declare a message dead for a group; the group's name and `dead`, `already_dead` or `discarded`.

        With no group named it is queue mode, or the only group there is.
        """
        place = await self.locate_partition(scope, partition_id)
        offset = await stored_messages.find(self._context.database, partition_id, transaction_id)
        if offset is None:
            raise _unknown(transaction_id, place)
        name, group_id = await self._group(scope, place, group)
        outcome = await stored_messages.bury(self._context.database, partition_id, group_id, offset, error)
        if outcome == "gone":
            raise UnknownGroup(f"consumer group {name!r} was deleted meanwhile", group=name)
        if outcome == "finished":
            raise WrongState(f"group {name!r} has finished message {transaction_id!r} already", group=name)
        if outcome != "already_dead":
            self._context.metrics.buried(scope, place.queue_id, place.queue, name)
            self._context.wakeups.notify(place.queue_id)
        return name, outcome

    async def retry(
        self, scope: Scope, partition_id: int, transaction_id: str, group: str | None
    ) -> tuple[Place, uuid.UUID]:
        """Push a dead message to the end of its partition and drop its dead letters; its place and new id.

        It is a new message to every group of the queue. With a group named, only that group's letter goes.
        """
        place = await self.locate_partition(scope, partition_id)
        letters = await dead_letter_queries.dead_letters_of(self._context.database, partition_id, transaction_id)
        if group is not None:
            letters = [letter for letter in letters if letter["group_name"] == group]
        message_id = new_id()
        outcome = "not_dead"
        if letters:
            payload = self._context.cipher.decrypt(letters[0]["payload"])
            if place.encrypted:
                payload = self._context.cipher.encrypt(payload)
            group_id = letters[0]["group_id"] if group is not None else None
            outcome = await stored_messages.retry(
                self._context.database, partition_id, transaction_id, group_id, message_id, payload
            )
        if outcome == "not_dead":
            raise WrongState(f"message {transaction_id!r} is no dead letter; only those can be retried")
        if outcome == "queue_full":
            raise QueueFull(f"queue {place.queue!r} is full: it has reached its maxSize", queue=place.queue)
        if outcome == "operations_waiting":
            raise Overloaded
        self._context.metrics.pushed(scope, place.queue_id, place.queue, 1)
        self._context.wakeups.notify(place.queue_id)
        return place, message_id

    async def _group(self, scope: Scope, place: Place, group: str | None) -> tuple[str, int]:
        rows = await consumer_groups.groups_of(self._context.database, place.queue_id)
        known = {row["name"]: row["id"] for row in rows}
        if group is None:
            if QUEUE_MODE not in known and len(known) > 1:
                raise InvalidRequest(
                    f"queue {place.queue!r} has several groups; name the one in consumerGroup",
                    groups=list(known),
                    field="consumerGroup",
                )
            group = next(iter(known)) if len(known) == 1 else QUEUE_MODE
        if group not in known:
            raise UnknownGroup(
                f"there is no consumer group {group!r} of queue {place.queue!r}; it is made by its first pop",
                group=group,
            )
        return group, known[group]


def _unknown(transaction_id: str, place: Place) -> UnknownMessage:
    return UnknownMessage(
        f"partition {place.partition!r} of queue {place.queue!r} keeps no message {transaction_id!r}",
        transactionId=transaction_id,
    )
