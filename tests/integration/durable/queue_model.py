"""What a durable queue should do, in plain Python: the model that the real one is held against.

Time is whole milliseconds. Nothing here knows tables: a message has at most one fate per group, a cursor is
the first message without one, and what a group may be given follows from that.

The model does not choose between partitions that are equally due. It is told what the real queue chose,
refuses what no rule allows, and goes on from there.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

UNANSWERED = "the lease expired without an ack"


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
    def life_ms(self) -> int | None:
        limits = [limit for limit in (self.ttl_ms, self.max_wait_ms) if limit]
        return min(limits) if limits else None


@dataclass(frozen=True)
class Stored:
    """A message in a partition's log; its offset is its place there."""

    message_id: uuid.UUID
    key: str | None
    created_at: int
    trace_id: uuid.UUID | None = None

    @property
    def transaction_id(self) -> str:
        return self.key or str(self.message_id)


@dataclass(frozen=True)
class Lease:
    lease_id: uuid.UUID
    start: int
    stop: int
    since: int
    until: int


@dataclass(frozen=True)
class DeadLetter:
    transaction_id: str
    error: str | None
    attempts: int


@dataclass(frozen=True)
class Given:
    """What a pop gave one request from one partition: offsets [start, stop), and (offset, attempts) of each
    message delivered."""

    request: int
    partition: str
    start: int
    stop: int
    delivered: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Settling:
    """One ack as a consumer sends it."""

    partition: str
    group: str
    lease_id: uuid.UUID
    transaction_id: str
    status: str
    error: str | None = None


@dataclass
class Partition:
    log: list[Stored] = field(default_factory=list)
    pushed_at: int = 0
    deleted: set[int] = field(default_factory=set)

    def place_of(self, subscription: int | str) -> int:
        """The offset at which a group starts or goes on: all, new, or a moment."""
        if isinstance(subscription, int):
            return sum(stored.created_at < subscription for stored in self.log)
        return len(self.log) if subscription == "new" else 0

    def original(self, key: str | None) -> uuid.UUID | None:
        if key is None:
            return None
        return next((stored.message_id for stored in self.log if stored.key == key), None)


@dataclass
class Position:
    """One group in one partition."""

    partition: Partition
    start: int
    fates: dict[int, str] = field(default_factory=dict)
    lease: Lease | None = None
    returned: set[int] = field(default_factory=set)
    attempts: dict[int, int] = field(default_factory=dict)
    redeliver_singly_until: int = 0
    not_before: int = 0

    @property
    def cursor(self) -> int:
        offset = self.start
        while offset in self.fates:
            offset += 1
        return offset

    @property
    def head(self) -> Stored | None:
        cursor = self.cursor
        return self.partition.log[cursor] if cursor < len(self.partition.log) else None

    @property
    def beyond(self) -> set[int]:
        """What is finished beyond the cursor."""
        cursor = self.cursor
        return {offset for offset in self.fates if offset > cursor}

    @property
    def behind(self) -> int:
        """How far the cursor has to go. What is finished beyond it counts until the cursor passes it."""
        return len(self.partition.log) - self.cursor

    def lease_at(self, now: int) -> Lease | None:
        """The lease in force."""
        return self.lease if self.lease and self.lease.until > now else None

    def running(self, now: int) -> int:
        lease = self.lease_at(now)
        return lease.stop - max(lease.start, self.cursor) if lease else 0

    def __post_init__(self) -> None:
        self.begin(self.start)

    def begin(self, start: int) -> None:
        """Stand at an offset as if nothing had happened; what was deleted is passed over."""
        self.start = start
        self.fates = {offset: "deleted" for offset in self.partition.deleted if offset >= start}
        self.end_lease()
        self.attempts = {}
        self.redeliver_singly_until = 0
        self.not_before = 0

    def finish(self, offset: int, fate: str) -> None:
        assert offset not in self.fates, f"offset {offset} already is {self.fates[offset]}"
        self.fates[offset] = fate
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
        """`subscription` is all, new or a moment."""
        if name not in self.groups:
            self.groups[name] = {
                key: Position(partition, partition.place_of(subscription))
                for key, partition in self.partitions.items()
            }

    def seek(self, group: str, names: Iterable[str], target: int | str) -> tuple[int, int]:
        """Let a group begin anew at a place; by how many messages it moved forward and back."""
        forward = back = 0
        for name in names:
            position = self.groups[group][name]
            before = position.cursor
            position.begin(position.partition.place_of(target))
            forward += max(position.cursor - before, 0)
            back += max(before - position.cursor, 0)
        return forward, back

    # Counting

    @property
    def stored(self) -> int:
        return sum(len(partition.log) for partition in self.partitions.values())

    @property
    def size(self) -> int:
        """How far the slowest group is behind; with no group, all there is."""
        if not self.groups:
            return self.stored
        return max(self.behind(group) for group in self.groups)

    def behind(self, group: str) -> int:
        return sum(position.behind for position in self.groups[group].values())

    def running(self, group: str, now: int) -> int:
        return sum(position.running(now) for position in self.groups[group].values())

    # Push

    def push(
        self,
        segments: Sequence[tuple[str, Sequence[tuple[uuid.UUID, str | None]]]],
        now: int,
        trace_id: uuid.UUID | None = None,
    ) -> tuple[list[int], dict[int, uuid.UUID], set[int]]:
        """First offsets per segment, original ids by duplicate item, and the items refused."""
        room = self.options.max_size - self.size if self.options.max_size else None
        first_offsets: list[int] = []
        duplicates: dict[int, uuid.UUID] = {}
        refused: set[int] = set()
        item = 0
        for name, messages in segments:
            partition = self.partitions[name]
            first_offsets.append(len(partition.log))
            for message_id, key in messages:
                original = partition.original(key)
                if original is not None:
                    duplicates[item] = original
                elif room is not None and room <= 0:
                    refused.add(item)
                else:
                    trace = trace_id or (message_id if key else None)
                    partition.log.append(Stored(message_id, key, now, trace))
                    partition.pushed_at = now
                    room = None if room is None else room - 1
                item += 1
        return first_offsets, duplicates, refused

    # Pop

    def due(self, group: str, name: str, now: int) -> bool:
        """Whether a partition may be looked at for a group: it is not leased, its retry's time has come, and
        its first message is old enough."""
        position = self.groups[group][name]
        head = position.head
        return (
            head is not None
            and position.lease_at(now) is None
            and position.not_before <= now
            and head.created_at + self.options.delay_ms <= now
        )

    def deliverable(self, group: str, name: str, now: int) -> bool:
        """Whether a pop that looks at a partition must find something there."""
        pushed_at = self.partitions[name].pushed_at
        held = self.options.window_ms and pushed_at + self.options.window_ms > now
        return self.due(group, name, now) and not held

    def poisoned(self, group: str, name: str, now: int) -> bool:
        """Whether the next pop that looks at a partition gives up on its first message."""
        position = self.groups[group][name]
        lease = position.lease
        return (
            lease is not None
            and lease.until <= now
            and (lease.start, lease.stop) == (position.cursor, position.cursor + 1)
            and self._at_limit(position, lease.start)
        )

    def stale_until(self, group: str, name: str, now: int) -> int | None:
        """Where the messages that outlived their time end, if the first one has."""
        position = self.groups[group][name]
        life_ms = self.options.life_ms
        head = position.head
        if life_ms is None or head is None or head.created_at > now - life_ms:
            return None
        offset = position.cursor
        log = position.partition.log
        while offset < len(log) and log[offset].created_at <= now - life_ms:
            offset += 1
        return offset

    def expire(self, group: str, name: str, passed: Sequence[int], now: int) -> None:
        """The real queue passed over these messages."""
        position = self.groups[group][name]
        assert position.lease_at(now) is None, f"{name} is leased and cannot expire"
        assert position.not_before <= now, f"{name} waits for its retry"
        stale_until = self.stale_until(group, name, now)
        assert stale_until is not None, f"nothing of {name} is past its time"
        stale = range(position.cursor, stale_until)
        assert list(passed) == [offset for offset in stale if offset not in position.fates]
        for offset in passed:
            position.finish(offset, "expired")
        position.end_lease()

    def give_up(self, group: str, name: str, now: int) -> None:
        """The real queue gave up on a partition's first message."""
        assert self.poisoned(group, name, now)
        position = self.groups[group][name]
        self._bury(group, name, position.cursor, UNANSWERED)
        position.end_lease()

    def give(self, group: str, given: Given, batch: int, lease: Lease | None, now: int) -> None:
        """The real queue gave messages of a partition to a request that had `batch` left; without a lease,
        for good."""
        name = given.partition
        position = self.groups[group][name]
        assert self.deliverable(group, name, now), f"{name} was given too early"
        assert not self.poisoned(group, name, now), f"{name} should have given up on its first message"
        assert self.stale_until(group, name, now) is None, f"{name} gave a message past its time"
        lost = position.lease
        redeliver_singly_until = max(position.redeliver_singly_until, lost.stop if lost else 0)
        cursor = position.cursor
        log = position.partition.log
        old_enough = [s for s in log[cursor:] if s.created_at + self.options.delay_ms <= now]
        length = min(len(old_enough), 1 if cursor < redeliver_singly_until else batch)
        assert (given.start, given.stop) == (cursor, cursor + length)
        if lost and (lost.start, lost.stop) == (cursor, cursor + 1):
            position.attempts[cursor] = position.attempts.get(cursor, 0) + 1
        expected = [
            (offset, position.attempts.get(offset, 0))
            for offset in range(given.start, given.stop)
            if offset not in position.fates
        ]
        assert list(given.delivered) == expected
        position.redeliver_singly_until = redeliver_singly_until
        position.end_lease()
        position.not_before = 0
        if lease:
            position.lease = lease
        else:
            for offset, _ in expected:
                position.finish(offset, "completed")

    # Ack, extend, release

    def ack(self, acks: Sequence[Settling], now: int) -> list[tuple[str, bool]]:
        """Outcome per ack, and whether its lease ended."""
        touched: dict[tuple[str, str], Position] = {}
        outcomes: list[str] = []
        for ack in acks:
            position = self.groups[ack.group].get(ack.partition)
            lease = position.lease_at(now) if position else None
            if position is None or lease is None or lease.lease_id != ack.lease_id:
                outcomes.append("lease_lost")
                continue
            touched[ack.partition, ack.group] = position
            offset = next(
                (
                    offset
                    for offset in range(lease.start, lease.stop)
                    if position.partition.log[offset].transaction_id == ack.transaction_id
                    and offset not in position.fates
                    and offset not in position.returned
                ),
                None,
            )
            outcomes.append("not_leased" if offset is None else self._settle(position, ack, offset))
        ended = {place for place, position in touched.items() if self._close(position, now)}
        return [
            (outcome, outcome != "lease_lost" and (ack.partition, ack.group) in ended)
            for ack, outcome in zip(acks, outcomes, strict=True)
        ]

    def _settle(self, position: Position, ack: Settling, offset: int) -> str:
        dead = ack.status == "dlq" or (ack.status == "failed" and self._at_limit(position, offset))
        if dead:
            self._bury(ack.group, ack.partition, offset, ack.error)
            return "dead"
        if ack.status == "completed":
            position.finish(offset, "completed")
            return "completed"
        position.returned.add(offset)
        if ack.status == "failed":
            position.attempts[offset] = position.attempts.get(offset, 0) + 1
        return ack.status

    def _close(self, position: Position, now: int) -> bool:
        """End the lease if nothing under it is open any more."""
        assert position.lease is not None
        under = range(position.lease.start, position.lease.stop)
        if any(offset not in position.fates and offset not in position.returned for offset in under):
            return False
        if position.returned:
            position.not_before = now + self.options.retry_delay_ms
        position.end_lease()
        return True

    def held(self, group: str, lease_id: uuid.UUID, now: int) -> Iterator[Position]:
        for position in self.groups[group].values():
            lease = position.lease_at(now)
            if lease and lease.lease_id == lease_id:
                yield position

    def extend(self, group: str, lease_id: uuid.UUID, ms: int, now: int) -> int | None:
        """When the lease ends now; None if it is lost."""
        until = None
        for position in self.held(group, lease_id, now):
            assert position.lease is not None
            until = max(position.lease.until, now + ms)
            position.lease = Lease(
                lease_id, position.lease.start, position.lease.stop, position.lease.since, until
            )
        return until

    def release(self, group: str, lease_id: uuid.UUID, partitions: Iterable[str]) -> int:
        """Give back a lease that nobody received."""
        released = 0
        for name in partitions:
            position = self.groups[group][name]
            if position.lease and position.lease.lease_id == lease_id:
                position.end_lease()
                released += 1
        return released

    # What operators do to single messages

    def delete(self, name: str, offset: int, now: int) -> bool:
        """Take a message out for everybody; whether there was anything to take."""
        partition = self.partitions[name]
        letters = [place for place in self.dead if place[1:] == (name, offset)]
        existed = offset not in partition.deleted or bool(letters)
        partition.deleted.add(offset)
        for letter in letters:
            del self.dead[letter]
        for positions in self.groups.values():
            position = positions[name]
            if offset >= position.cursor and offset not in position.fates:
                self._pass_over(position, offset, "deleted", now)
        return existed

    def bury(self, group: str, name: str, offset: int, error: str, now: int) -> str:
        """Declare a message dead."""
        position = self.groups[group][name]
        if (group, name, offset) in self.dead:
            return "already_dead"
        if offset < position.cursor or offset in position.fates:
            return "finished"
        if self.options.keep_dead:
            attempts = position.attempts.get(offset, 0)
            letter = DeadLetter(position.partition.log[offset].transaction_id, error, attempts)
            self.dead[group, name, offset] = letter
        self._pass_over(position, offset, "dead", now)
        return "dead" if self.options.keep_dead else "discarded"

    def retry(self, name: str, offset: int, group: str | None, message_id: uuid.UUID, now: int) -> str:
        """Push a dead message again, and drop its letters, or one group's."""
        letters = [place for place in self.dead if place[1:] == (name, offset) and group in (None, place[0])]
        if not letters:
            return "not_dead"
        trace_id = self.partitions[name].log[offset].trace_id
        _, _, refused = self.push([(name, [(message_id, None)])], now, trace_id)
        if refused:
            return "queue_full"
        for letter in letters:
            del self.dead[letter]
        return "queued"

    def _pass_over(self, position: Position, offset: int, fate: str, now: int) -> None:
        position.finish(offset, fate)
        if position.lease:
            self._close(position, now)

    def _at_limit(self, position: Position, offset: int) -> bool:
        return self.options.dead_after_limit and position.attempts.get(offset, 0) >= self.options.retry_limit

    def _bury(self, group: str, name: str, offset: int, error: str | None) -> None:
        position = self.groups[group][name]
        if self.options.keep_dead:
            letter = DeadLetter(
                position.partition.log[offset].transaction_id, error, position.attempts.get(offset, 0) + 1
            )
            # Brought back by a seek it may die again; the first letter stays.
            self.dead.setdefault((group, name, offset), letter)
        position.finish(offset, "dead")
