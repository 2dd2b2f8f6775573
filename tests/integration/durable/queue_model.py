"""A model of the durable queue in plain Python, to compare the real queue with.

Time is in whole milliseconds. The model has no tables: a message has at most one outcome per group, the
cursor is at the first message without one, and the messages a group may get follow from that.

The model does not choose between partitions that are equally due. It takes the choice of the real queue,
fails if no rule allows it, and continues from there.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

LEASE_EXPIRED_ERROR = "the lease expired without an ack"


@dataclass(frozen=True)
class Options:
    retry_limit: int = 3
    retry_delay_ms: int = 0
    dead_after_limit: bool = True
    keep_dead: bool = True
    delay_ms: int = 0
    window_ms: int = 0
    ttl_ms: int = 0
    max_wait_ms: int = 0
    max_size: int = 0

    @property
    def time_to_live_ms(self) -> int | None:
        limits = [limit for limit in (self.ttl_ms, self.max_wait_ms) if limit]
        return min(limits) if limits else None


@dataclass(frozen=True)
class StoredMessage:
    """A message in a partition's log; its offset is its index there."""

    message_id: uuid.UUID
    key: str | None
    created_at: int
    trace_id: uuid.UUID | None = None
    retry_of: StoredMessage | None = None

    @property
    def payload(self) -> bytes:
        """The payload is the id of the message, or of the message whose retry it is."""
        return self.retry_of.payload if self.retry_of else self.message_id.bytes

    @property
    def transaction_id(self) -> str:
        return self.key or str(self.message_id)


@dataclass(frozen=True)
class Lease:
    lease_id: uuid.UUID
    start: int
    stop: int
    leased_at: int
    expires_at: int


@dataclass(frozen=True)
class DeadLetter:
    transaction_id: str
    error: str | None
    attempts: int


@dataclass(frozen=True)
class PoppedBatch:
    """The messages of one partition that a pop returned to one request: offsets [start, stop), and
    (offset, attempts) of each message delivered."""

    request: int
    partition: str
    start: int
    stop: int
    delivered: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class AckRequest:
    """One ack as a consumer sends it."""

    partition: str
    group: str
    lease_id: uuid.UUID
    transaction_id: str
    status: str
    error: str | None = None


@dataclass
class Partition:
    log: list[StoredMessage] = field(default_factory=list)
    pushed_at: int = 0
    deleted: set[int] = field(default_factory=set)

    def offset_of(self, subscription: int | str) -> int:
        """Return the offset of a subscription or seek target: all, new, or a timestamp."""
        if isinstance(subscription, int):
            return sum(stored.created_at < subscription for stored in self.log)
        return len(self.log) if subscription == "new" else 0

    def original_message_id(self, key: str | None) -> uuid.UUID | None:
        if key is None:
            return None
        return next((stored.message_id for stored in self.log if stored.key == key), None)


@dataclass
class Position:
    """One group in one partition."""

    partition: Partition
    start: int
    final_outcomes: dict[int, str] = field(default_factory=dict)
    lease: Lease | None = None
    returned: set[int] = field(default_factory=set)
    attempts: dict[int, int] = field(default_factory=dict)
    redeliver_singly_until: int = 0
    not_before: int = 0

    @property
    def cursor(self) -> int:
        offset = self.start
        while offset in self.final_outcomes:
            offset += 1
        return offset

    @property
    def head(self) -> StoredMessage | None:
        cursor = self.cursor
        return self.partition.log[cursor] if cursor < len(self.partition.log) else None

    @property
    def finished_beyond_cursor(self) -> set[int]:
        """Offsets finished beyond the cursor."""
        cursor = self.cursor
        return {offset for offset in self.final_outcomes if offset > cursor}

    @property
    def unfinished(self) -> int:
        """Messages from the cursor on, also those finished beyond it."""
        return len(self.partition.log) - self.cursor

    def live_lease(self, now: int) -> Lease | None:
        """Return the lease in force."""
        return self.lease if self.lease and self.lease.expires_at > now else None

    def running(self, now: int) -> int:
        lease = self.live_lease(now)
        return lease.stop - max(lease.start, self.cursor) if lease else 0

    def __post_init__(self) -> None:
        self.reset_to(self.start)

    def reset_to(self, start: int) -> None:
        """Move to an offset and discard all state; deleted messages count as finished."""
        self.start = start
        self.final_outcomes = {offset: "deleted" for offset in self.partition.deleted if offset >= start}
        self.end_lease()
        self.attempts = {}
        self.redeliver_singly_until = 0
        self.not_before = 0

    def finish(self, offset: int, outcome: str) -> None:
        assert offset not in self.final_outcomes, f"offset {offset} already is {self.final_outcomes[offset]}"
        self.final_outcomes[offset] = outcome
        self.attempts.pop(offset, None)
        self.returned.discard(offset)

    def end_lease(self) -> None:
        self.lease = None
        self.returned = set()


@dataclass
class QueueModel:
    options: Options = Options()
    partitions: dict[str, Partition] = field(default_factory=dict)
    groups: dict[str, dict[str, Position]] = field(default_factory=dict)
    dead: dict[tuple[str, str, int], DeadLetter] = field(default_factory=dict)

    # Partitions and groups

    def add_partition(self, name: str) -> None:
        if name not in self.partitions:
            self.partitions[name] = Partition()
            for positions in self.groups.values():
                positions[name] = Position(self.partitions[name], 0)

    def add_group(self, name: str, subscription: int | str) -> None:
        """Add a group; `subscription` is all, new or a timestamp."""
        if name not in self.groups:
            self.groups[name] = {
                key: Position(partition, partition.offset_of(subscription))
                for key, partition in self.partitions.items()
            }

    def seek(self, group: str, names: Iterable[str], target: int | str) -> tuple[int, int]:
        """Move a group; return by how many messages it moved forward and back."""
        forward = back = 0
        for name in names:
            position = self.groups[group][name]
            old_cursor = position.cursor
            position.reset_to(position.partition.offset_of(target))
            forward += max(position.cursor - old_cursor, 0)
            back += max(old_cursor - position.cursor, 0)
        return forward, back

    # Counting

    @property
    def stored(self) -> int:
        return sum(len(partition.log) for partition in self.partitions.values())

    @property
    def size(self) -> int:
        """The unfinished messages of the slowest group; without a group, all messages."""
        if not self.groups:
            return self.stored
        return max(self.unfinished(group) for group in self.groups)

    def unfinished(self, group: str) -> int:
        return sum(position.unfinished for position in self.groups[group].values())

    def running(self, group: str, now: int) -> int:
        return sum(position.running(now) for position in self.groups[group].values())

    # Push

    def push(
        self,
        segments: Sequence[tuple[str, Sequence[tuple[uuid.UUID, str | None]]]],
        now: int,
        retry_of: StoredMessage | None = None,
    ) -> tuple[list[int], dict[int, uuid.UUID], set[int]]:
        """Return first offsets per segment, original ids by duplicate item, and the items refused."""
        free_slots = self.options.max_size - self.size if self.options.max_size else None
        first_offsets: list[int] = []
        duplicates: dict[int, uuid.UUID] = {}
        refused: set[int] = set()
        item = 0
        for name, messages in segments:
            partition = self.partitions[name]
            first_offsets.append(len(partition.log))
            for message_id, key in messages:
                original_message_id = partition.original_message_id(key)
                if original_message_id is not None:
                    duplicates[item] = original_message_id
                elif free_slots is not None and free_slots <= 0:
                    refused.add(item)
                else:
                    trace_id = retry_of.trace_id if retry_of else message_id if key else None
                    partition.log.append(StoredMessage(message_id, key, now, trace_id, retry_of))
                    partition.pushed_at = now
                    free_slots = None if free_slots is None else free_slots - 1
                item += 1
        return first_offsets, duplicates, refused

    # Pop

    def is_due(self, group: str, name: str, now: int) -> bool:
        """Whether a pop of a group may read a partition: it is not leased, its retry time has come, and its
        first message is older than the delay."""
        position = self.groups[group][name]
        head = position.head
        return (
            head is not None
            and position.live_lease(now) is None
            and position.not_before <= now
            and head.created_at + self.options.delay_ms <= now
        )

    def is_deliverable(self, group: str, name: str, now: int) -> bool:
        """Whether a pop that reads a partition must return messages."""
        pushed_at = self.partitions[name].pushed_at
        in_window = self.options.window_ms and pushed_at + self.options.window_ms > now
        return self.is_due(group, name, now) and not in_window

    def is_poisoned(self, group: str, name: str, now: int) -> bool:
        """Whether the next pop that reads a partition declares its first message dead."""
        position = self.groups[group][name]
        lease = position.lease
        return (
            lease is not None
            and lease.expires_at <= now
            and (lease.start, lease.stop) == (position.cursor, position.cursor + 1)
            and self._at_limit(position, lease.start)
        )

    def expired_until(self, group: str, name: str, now: int) -> int | None:
        """Return the offset after the expired messages; None if the first message has not expired."""
        position = self.groups[group][name]
        time_to_live_ms = self.options.time_to_live_ms
        head = position.head
        if time_to_live_ms is None or head is None or head.created_at > now - time_to_live_ms:
            return None
        offset = position.cursor
        log = position.partition.log
        while offset < len(log) and log[offset].created_at <= now - time_to_live_ms:
            offset += 1
        return offset

    def expire(self, group: str, name: str, skipped: Sequence[int], now: int) -> None:
        """Apply that the real queue skipped these expired messages."""
        position = self.groups[group][name]
        assert position.live_lease(now) is None, f"{name} is leased and cannot expire"
        assert position.not_before <= now, f"{name} waits for its retry"
        expired_until = self.expired_until(group, name, now)
        assert expired_until is not None, f"no message of {name} has expired"
        expired = range(position.cursor, expired_until)
        assert list(skipped) == [offset for offset in expired if offset not in position.final_outcomes]
        for offset in skipped:
            position.finish(offset, "expired")
        position.end_lease()

    def declare_first_message_dead(self, group: str, name: str, now: int) -> None:
        """Apply that the real queue declared a partition's first message dead."""
        assert self.is_poisoned(group, name, now)
        position = self.groups[group][name]
        self._add_dead_letter(group, name, position.cursor, LEASE_EXPIRED_ERROR)
        position.end_lease()

    def deliver(self, group: str, popped: PoppedBatch, batch: int, lease: Lease | None, now: int) -> None:
        """Apply that the real queue returned messages of a partition to a request with `batch` remaining;
        without a lease they are finished."""
        name = popped.partition
        position = self.groups[group][name]
        assert self.is_deliverable(group, name, now), f"{name} was delivered too early"
        assert not self.is_poisoned(group, name, now), f"the first message of {name} should be dead"
        assert self.expired_until(group, name, now) is None, f"{name} delivered an expired message"
        expired_lease = position.lease
        redeliver_singly_until = max(
            position.redeliver_singly_until, expired_lease.stop if expired_lease else 0
        )
        cursor = position.cursor
        log = position.partition.log
        old_enough = [s for s in log[cursor:] if s.created_at + self.options.delay_ms <= now]
        length = min(len(old_enough), 1 if cursor < redeliver_singly_until else batch)
        assert (popped.start, popped.stop) == (cursor, cursor + length)
        if expired_lease and (expired_lease.start, expired_lease.stop) == (cursor, cursor + 1):
            position.attempts[cursor] = position.attempts.get(cursor, 0) + 1
        expected = [
            (offset, position.attempts.get(offset, 0))
            for offset in range(popped.start, popped.stop)
            if offset not in position.final_outcomes
        ]
        assert list(popped.delivered) == expected
        position.redeliver_singly_until = redeliver_singly_until
        position.end_lease()
        position.not_before = 0
        if lease:
            position.lease = lease
        else:
            for offset, _ in expected:
                position.finish(offset, "completed")

    # Ack, extend, release

    def ack(self, acks: Sequence[AckRequest], now: int) -> list[tuple[str, bool]]:
        """Return the outcome per ack, and whether its lease ended."""
        touched: dict[tuple[str, str], Position] = {}
        outcomes: list[str] = []
        for ack in acks:
            position = self.groups[ack.group].get(ack.partition)
            lease = position.live_lease(now) if position else None
            if position is None or lease is None or lease.lease_id != ack.lease_id:
                outcomes.append("lease_lost")
                continue
            touched[ack.partition, ack.group] = position
            offset = next(
                (
                    offset
                    for offset in range(lease.start, lease.stop)
                    if position.partition.log[offset].transaction_id == ack.transaction_id
                    and offset not in position.final_outcomes
                    and offset not in position.returned
                ),
                None,
            )
            outcomes.append("not_leased" if offset is None else self._apply_ack(position, ack, offset))
        ended = {key for key, position in touched.items() if self._end_lease_if_acked(position, now)}
        return [
            (outcome, outcome != "lease_lost" and (ack.partition, ack.group) in ended)
            for ack, outcome in zip(acks, outcomes, strict=True)
        ]

    def _apply_ack(self, position: Position, ack: AckRequest, offset: int) -> str:
        dead = ack.status == "dlq" or (ack.status == "failed" and self._at_limit(position, offset))
        if dead:
            self._add_dead_letter(ack.group, ack.partition, offset, ack.error)
            return "dead"
        if ack.status == "completed":
            position.finish(offset, "completed")
            return "completed"
        position.returned.add(offset)
        if ack.status == "failed":
            position.attempts[offset] = position.attempts.get(offset, 0) + 1
        return ack.status

    def _end_lease_if_acked(self, position: Position, now: int) -> bool:
        """End the lease if all its messages are finished or returned; return whether it ended."""
        assert position.lease is not None
        leased = range(position.lease.start, position.lease.stop)
        if any(
            offset not in position.final_outcomes and offset not in position.returned for offset in leased
        ):
            return False
        if position.returned:
            position.not_before = now + self.options.retry_delay_ms
        position.end_lease()
        return True

    def leased_positions(self, group: str, lease_id: uuid.UUID, now: int) -> Iterator[Position]:
        for position in self.groups[group].values():
            lease = position.live_lease(now)
            if lease and lease.lease_id == lease_id:
                yield position

    def extend(self, group: str, lease_id: uuid.UUID, ms: int, now: int) -> int | None:
        """Extend a lease; return its new end, or None if it is lost."""
        expires_at = None
        for position in self.leased_positions(group, lease_id, now):
            assert position.lease is not None
            expires_at = max(position.lease.expires_at, now + ms)
            position.lease = Lease(
                lease_id, position.lease.start, position.lease.stop, position.lease.leased_at, expires_at
            )
        return expires_at

    def release(self, group: str, lease_id: uuid.UUID, partitions: Iterable[str]) -> int:
        """Release a lease whose messages no consumer received; return the number of positions."""
        released = 0
        for name in partitions:
            position = self.groups[group][name]
            if position.lease and position.lease.lease_id == lease_id:
                position.end_lease()
                released += 1
        return released

    # Operator actions on single messages

    def delete(self, name: str, offset: int, now: int) -> bool:
        """Delete a message for all groups; return whether there was anything to delete."""
        partition = self.partitions[name]
        dead_letters = [key for key in self.dead if key[1:] == (name, offset)]
        existed = offset not in partition.deleted or bool(dead_letters)
        partition.deleted.add(offset)
        for key in dead_letters:
            del self.dead[key]
        for positions in self.groups.values():
            position = positions[name]
            if offset >= position.cursor and offset not in position.final_outcomes:
                self._finish_message(position, offset, "deleted", now)
        return existed

    def declare_dead(self, group: str, name: str, offset: int, error: str, now: int) -> str:
        """Declare a message dead; return the outcome."""
        position = self.groups[group][name]
        if (group, name, offset) in self.dead:
            return "already_dead"
        if offset < position.cursor or offset in position.final_outcomes:
            return "finished"
        if self.options.keep_dead:
            attempts = position.attempts.get(offset, 0)
            dead_letter = DeadLetter(position.partition.log[offset].transaction_id, error, attempts)
            self.dead[group, name, offset] = dead_letter
        self._finish_message(position, offset, "dead", now)
        return "dead" if self.options.keep_dead else "discarded"

    def retry(self, name: str, offset: int, group: str | None, message_id: uuid.UUID, now: int) -> str:
        """Push a dead message again and delete its dead letters, or those of one group."""
        dead_letters = [key for key in self.dead if key[1:] == (name, offset) and group in (None, key[0])]
        if not dead_letters:
            return "not_dead"
        message = self.partitions[name].log[offset]
        _, _, refused = self.push([(name, [(message_id, None)])], now, message)
        if refused:
            return "queue_full"
        for key in dead_letters:
            del self.dead[key]
        return "queued"

    def _finish_message(self, position: Position, offset: int, outcome: str, now: int) -> None:
        position.finish(offset, outcome)
        if position.lease:
            self._end_lease_if_acked(position, now)

    def _at_limit(self, position: Position, offset: int) -> bool:
        return self.options.dead_after_limit and position.attempts.get(offset, 0) >= self.options.retry_limit

    def _add_dead_letter(self, group: str, name: str, offset: int, error: str | None) -> None:
        position = self.groups[group][name]
        if self.options.keep_dead:
            dead_letter = DeadLetter(
                position.partition.log[offset].transaction_id, error, position.attempts.get(offset, 0) + 1
            )
            # After a seek it may die again; the first dead letter stays.
            self.dead.setdefault((group, name, offset), dead_letter)
        position.finish(offset, "dead")
