"""One queue in the database and its model, side by side: every step is done to both and compared."""

from __future__ import annotations

import asyncio
import copy
import json
import uuid
from collections.abc import Coroutine, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from penstock.durable import consumer_groups, log
from penstock.durable import stored_messages as single
from penstock.durable.log import Ack, PartitionName, PopRequest, Segment
from penstock.durable.pool import Database
from penstock.errors import TransactionFailed
from penstock.model import DEFAULT_SCOPE
from tests.integration.durable.queue_model import DeadLetter, Given, Lease, Options, QueueModel, Settling
from tests.integration.durable.queue_under_test import as_segment, delivered

T = TypeVar("T")

START = datetime(2030, 1, 1, tzinfo=UTC)
LEASE_MS = 1_000
NOWHERE = "nowhere"
NOWHERE_ID = 10**12


@dataclass(frozen=True)
class Handle:
    """What a consumer knows after a pop; it is kept for ever, so it also serves for stale acks."""

    group: str
    lease_id: uuid.UUID
    messages: tuple[tuple[str, str], ...]  # partition, transaction id

    def message(self, number: int) -> tuple[str, str]:
        return self.messages[number % len(self.messages)]


@dataclass(frozen=True)
class Word:
    """What a consumer says about one message, by numbers: what they mean depends on what was popped."""

    handle: int
    message: int
    status: str
    odd: int


class CheckedQueue:
    def __init__(self, runner: asyncio.Runner, database: Database, name: str) -> None:
        self.runner = runner
        self.database = database
        self.name = name
        self.model = QueueModel()
        self.now = 0
        self.queue_id = 0
        self.partition_ids: dict[str, int] = {}
        self.group_ids: dict[str, int] = {}
        self.handles: list[Handle] = []

    def make(self, options: Options, existing: Sequence[str]) -> None:
        self.add_partitions(existing)
        self.model.options = options
        changes = ", ".join(f"{name} = ${at}" for at, name in enumerate(asdict(options), 2))
        query = f"UPDATE queues SET {changes} WHERE id = $1"
        self.run(self.database.fetch(query, self.queue_id, *asdict(options).values()))

    # Ways to the database

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @property
    def moment(self) -> datetime:
        return START + timedelta(milliseconds=self.now)

    def new_id(self) -> uuid.UUID:
        """A message id of this moment: a message is found again by the time in it."""
        random = uuid.uuid4()
        ms = int(self.moment.timestamp() * 1000)
        return uuid.UUID(int=ms << 80 | 7 << 76 | random.int & ((1 << 76) - 1))

    def add_partitions(self, names: Sequence[str]) -> None:
        wanted = [PartitionName(self.name, name) for name in names]
        found = self.run(log.ensure_partitions(self.database, DEFAULT_SCOPE, wanted))
        for key, ids in found.items():
            self.partition_ids[key.partition] = ids.partition_id
            self.queue_id = ids.queue_id
            self.model.add_partition(key.partition)

    def add_group(self, name: str, subscription: str | int = "all") -> None:
        text = subscription if isinstance(subscription, str) else iso(subscription)
        ids = self.run(log.ensure_group(self.database, DEFAULT_SCOPE, self.name, name, text))
        self.group_ids[name] = ids.group_id
        self.model.add_group(name, subscription)

    def segments(
        self, wanted: dict[str, list[str | None]]
    ) -> tuple[list[Segment], list[tuple[str, list[tuple[uuid.UUID, str | None]]]]]:
        """The same messages for the database and for the model."""
        stored: list[Segment] = []
        modelled: list[tuple[str, list[tuple[uuid.UUID, str | None]]]] = []
        for name, chosen in wanted.items():
            ids = [self.new_id() for _ in chosen]
            modelled.append((name, list(zip(ids, chosen, strict=True))))
            payloads = [message_id.bytes for message_id in ids]
            traces = [message_id if key else None for message_id, key in zip(ids, chosen, strict=True)]
            stored.append(Segment(self.partition_ids[name], ids, list(chosen), traces, payloads))
        return stored, modelled

    def acks(self, settlings: Sequence[Settling]) -> list[Ack]:
        return [
            Ack(
                self.partition_ids.get(s.partition, NOWHERE_ID),
                self.group_ids[s.group],
                s.lease_id,
                s.transaction_id,
                s.status,
                s.error,
            )
            for s in settlings
        ]

    def settlings(self, words: Sequence[Word]) -> list[Settling]:
        """The words as acks. Most are of what was popped; some are of messages that are somebody else's."""
        settlings = []
        for word in words if self.handles else ():
            handle = self.recent(word.handle)
            partition, transaction_id = handle.message(word.message)
            if word.odd:
                stranger = self.recent(word.odd).message(word.message)
                partition, transaction_id = [
                    (partition, stranger[1]),
                    stranger,
                    (NOWHERE, transaction_id),
                    (partition, "nobody"),
                ][word.odd % 4]
            error = None if word.status == "completed" else f"no {self.now}"
            settlings.append(
                Settling(partition, handle.group, handle.lease_id, transaction_id, word.status, error)
            )
        return settlings

    def recent(self, number: int) -> Handle:
        handles = self.handles[-5:]
        return handles[-1 - number % len(handles)]

    # Steps

    def time_passes(self, ms: int) -> None:
        self.now += ms

    def subscribe(self, name: str, subscription: str | int) -> None:
        self.add_group(name, subscription)

    def push(self, wanted: dict[str, list[str | None]]) -> None:
        self.add_partitions(list(wanted))
        segments, modelled = self.segments(wanted)
        pushed = self.run(log.push(self.database, segments, self.moment))
        first_offsets, duplicates, refused = self.model.push(modelled, self.now)
        assert pushed.first_offsets == first_offsets
        assert pushed.duplicates == duplicates
        assert pushed.refused == refused

    def pop(self, group: str, asked: list[tuple[int, int]], only: str | None, auto_ack: bool) -> None:
        self.add_group(group)
        if only is not None:
            self.add_partitions([only])
        requests = [PopRequest(uuid.uuid4(), batch, width) for batch, width in asked]
        rows = self.run(
            log.pop(
                self.database,
                self.group_ids[group],
                requests,
                partition_id=self.partition_ids[only] if only else None,
                lease_ms=LEASE_MS,
                auto_ack=auto_ack,
                now=self.moment,
            )
        )
        self.check_pop(group, requests, only, auto_ack, rows)

    def take_some(self, group: str, batch: int) -> None:
        """The plain pop that most consumers do."""
        self.pop(group, [(batch, 1)], None, False)

    def take_singly(self, group: str, requests: int) -> None:
        """The pops of consumers that take one message at a time."""
        self.add_group(group)
        asked = [PopRequest(uuid.uuid4(), 1) for _ in range(requests)]
        rows = self.run(
            log.pop_single(
                self.database,
                self.group_ids[group],
                [request.lease_id for request in asked],
                lease_ms=LEASE_MS,
                now=self.moment,
            )
        )
        self.check_pop(group, asked, None, False, [as_segment(row) for row in rows])

    def take_and_die(self, group: str, batch: int) -> None:
        """The pop of a consumer that is never heard of again."""
        self.pop(group, [(batch, 1)], None, False)
        self.now += LEASE_MS

    def finish_a_pop(self, number: int) -> None:
        if self.handles:
            self.ack_all(self.recent(number))

    def settle_some(self, number: int, which: set[int], status: str) -> None:
        """The same word for some of what was popped."""
        if self.handles:
            handle = self.recent(number)
            chosen = dict.fromkeys(handle.message(one) for one in which)
            self.ack([Settling(p, handle.group, handle.lease_id, t, status) for p, t in chosen])

    def settle(self, said: list[Word]) -> None:
        self.ack(self.settlings(said))

    def ack(self, settlings: list[Settling]) -> None:
        results = self.run(log.ack(self.database, self.acks(settlings), self.moment))
        outcomes, released = zip(*self.model.ack(settlings, self.now), strict=True) if settlings else ((), ())
        assert tuple(result.outcome for result in results) == outcomes
        for result, ended in zip(results, released, strict=True):
            if result.outcome not in ("lease_lost", "not_leased"):
                assert result.lease_released == ended

    def ack_all(self, handle: Handle) -> None:
        self.ack([Settling(p, handle.group, handle.lease_id, t, "completed") for p, t in handle.messages])

    def transact(self, said: list[Word], wanted: dict[str, list[str | None]]) -> None:
        self.add_partitions(list(wanted) or list(self.partition_ids))
        settlings = self.settlings(said)
        segments, modelled = self.segments(wanted)
        trial = copy.deepcopy(self.model)
        _, duplicates, refused = trial.push(modelled, self.now)
        outcomes = [outcome for outcome, _ in trial.ack(settlings, self.now)]
        failed = [at for at, outcome in enumerate(outcomes) if outcome in ("lease_lost", "not_leased")]
        work = log.transaction(self.database, segments, self.acks(settlings), self.moment)
        if refused:
            self.refuse(work, "push", min(refused), "queue_full")
        elif failed:
            self.refuse(work, "ack", failed[0], outcomes[failed[0]])
        else:
            done = self.run(work)
            assert (done.duplicates, done.outcomes) == (duplicates, outcomes)
            self.model = trial

    def refuse(self, work: Coroutine[Any, Any, Any], part: str, item: int, reason: str) -> None:
        with pytest.raises(TransactionFailed) as caught:
            self.run(work)
        assert (caught.value.kind, caught.value.item, caught.value.reason) == (part, item, reason)

    def extend(self, number: int, ms: int) -> None:
        if not self.handles:
            return
        handle = self.recent(number)
        leases = [(self.group_ids[handle.group], handle.lease_id, ms)]
        [end] = self.run(log.extend(self.database, leases, self.moment))
        expected = self.model.extend(handle.group, handle.lease_id, ms, self.now)
        assert (end and end.isoformat()) == (expected and iso(expected))

    def receive_nothing(self, number: int) -> None:
        """The consumer left before its answer: the broker gives the lease back."""
        if not self.handles:
            return
        handle = self.recent(number)
        names = {partition for partition, _ in handle.messages}
        ids = [self.partition_ids[name] for name in names]
        released = self.run(log.release(self.database, self.group_ids[handle.group], handle.lease_id, ids))
        assert released == self.model.release(handle.group, handle.lease_id, names)

    def seek(self, group: str, place: str | int, only: str | None) -> None:
        if group not in self.group_ids or (only and only not in self.partition_ids):
            return
        text = place if isinstance(place, str) else iso(place)
        partition_id = self.partition_ids[only] if only else None
        moved = self.run(consumer_groups.seek(self.database, self.group_ids[group], text, partition_id))
        expected = self.model.seek(group, [only] if only else list(self.partition_ids), place)
        assert (moved.forward, moved.back) == expected

    def delete(self, name: str, number: int) -> None:
        stored = self.stored(name, number)
        if stored:
            offset, transaction_id = stored
            work = single.delete(self.database, self.partition_ids[name], transaction_id, self.moment)
            assert self.run(work) == self.model.delete(name, offset, self.now)

    def bury(self, name: str, number: int, group: str) -> None:
        stored = self.stored(name, number)
        if stored and group in self.group_ids:
            place = (self.partition_ids[name], self.group_ids[group], stored[0])
            outcome = self.run(single.bury(self.database, *place, "enough", self.moment))
            assert outcome == self.model.bury(group, name, stored[0], "enough", self.now)

    def retry(self, number: int, group: str | None) -> None:
        """Push a dead message again; without dead letters, try it with a living one."""
        letters = sorted(self.model.dead) or [
            ("", name, 0) for name, p in self.model.partitions.items() if p.log
        ]
        if letters and (group is None or group in self.group_ids):
            _, name, offset = letters[number % len(letters)]
            transaction_id = self.model.partitions[name].log[offset].transaction_id
            group_id = self.group_ids[group] if group else None
            new = self.new_id()
            place = (self.partition_ids[name], transaction_id, group_id)
            outcome = self.run(single.retry(self.database, *place, new, new.bytes, self.moment))
            assert outcome == self.model.retry(name, offset, group, new, self.now)

    def stored(self, name: str, number: int) -> tuple[int, str] | None:
        """Offset and transaction id of one of a partition's messages."""
        partition = self.model.partitions.get(name)
        if partition is None or not partition.log:
            return None
        offset = number % len(partition.log)
        return offset, partition.log[offset].transaction_id

    def drain(self) -> None:
        """Everything can still be taken to its end, in order."""
        for group in self.group_ids:
            for _ in range(4 * self.model.stored + 4):
                if not self.model.behind(group):
                    break
                self.now += 5_000
                known = len(self.handles)
                self.pop(group, [(100, len(self.partition_ids))], None, False)
                for handle in self.handles[known:]:
                    self.ack_all(handle)
            assert not self.model.behind(group), "something is stuck"

    # What a pop may do

    def check_pop(
        self, group: str, requests: list[PopRequest], only: str | None, auto_ack: bool, rows: list[Any]
    ) -> None:
        model, now = self.model, self.now
        names = {partition_id: name for name, partition_id in self.partition_ids.items()}
        looked_at = [only] if only else list(self.partition_ids)
        slots = [at for at, request in enumerate(requests, 1) for _ in range(request.width)]
        due = [name for name in looked_at if model.due(group, name, now)]
        expired: dict[str, list[int]] = {}
        for row in rows:
            if not row["request"]:
                passed = expired.setdefault(names[row["partition_id"]], [])
                passed += range(row["leased_from"], row["leased_to"])
        for name, passed in expired.items():
            model.expire(group, name, passed, now)
        given = gathered(rows, names)
        starts = self.cursors(group) | {one.partition: one.start for one in given}
        for name, start in starts.items():
            if model.poisoned(group, name, now) and start > model.groups[group][name].cursor:
                model.give_up(group, name, now)
        if len(due) <= len(slots):
            for name in due:
                assert not model.poisoned(group, name, now), f"{name} should have been given up on"
                if model.due(group, name, now):
                    assert model.stale_until(group, name, now) is None, f"{name} should have expired"

        ready = sum(model.deliverable(group, name, now) for name in looked_at)
        served = slots[:ready]
        assert len({one.partition for one in given}) == len(given), "a partition was given twice"
        for at, request in enumerate(requests, 1):
            mine = [one for one in given if one.request == at]
            left = request.batch
            for one in mine:
                until = now + LEASE_MS
                lease = Lease(request.lease_id, one.start, one.stop, now, until)
                model.give(group, one, left, None if auto_ack else lease, now)
                left -= one.stop - one.start
            assert len(mine) == served.count(at) or (left == 0 and len(mine) < served.count(at))
            if mine and not auto_ack:
                self.handles.append(self.handle(group, request.lease_id, mine))

    def handle(self, group: str, lease_id: uuid.UUID, given: list[Given]) -> Handle:
        logs = {name: partition.log for name, partition in self.model.partitions.items()}
        return Handle(
            group,
            lease_id,
            tuple(
                (one.partition, logs[one.partition][offset].transaction_id)
                for one in given
                for offset, _ in one.delivered
            ),
        )

    def cursors(self, group: str) -> dict[str, int]:
        names = {partition_id: name for name, partition_id in self.partition_ids.items()}
        query = "SELECT partition_id, cursor FROM positions WHERE group_id = $1"
        rows = self.run(self.database.fetch(query, self.group_ids[group]))
        return {names[row["partition_id"]]: row["cursor"] for row in rows}

    # What must hold after every step

    def agree(self) -> None:
        self.the_log_is_what_was_pushed()
        self.positions_are_where_they_should_be()
        self.counts_are_exact()
        self.dead_letters_are_those_given_up_on()

    def the_log_is_what_was_pushed(self) -> None:
        rows = self.run(
            self.database.fetch(
                """SELECT t.name, t.next_offset, l.*
                   FROM partitions t LEFT JOIN log l ON l.partition_id = t.id
                   WHERE t.queue_id = $1 ORDER BY t.id, l.first_offset""",
                self.queue_id,
            )
        )
        found: dict[str, list[tuple[Any, ...]]] = {}
        for row in rows:
            stored = found.setdefault(row["name"], [])
            assert row["next_offset"] == len(self.model.partitions[row["name"]].log)
            if row["first_offset"] is None:
                continue
            assert row["first_offset"] == len(stored), "a gap or an overlap between segments"
            chosen = row["transaction_ids"] or [None] * len(row["message_ids"])
            traces = row["trace_ids"] or [None] * len(row["message_ids"])
            for message_id, key, trace, payload in zip(
                row["message_ids"], chosen, traces, row["payloads"], strict=True
            ):
                deleted = len(stored) in self.model.partitions[row["name"]].deleted
                assert payload == (b"null" if deleted else message_id.bytes)
                stored.append((message_id, key, trace, row["created_at"]))
            assert row["last_offset"] == len(stored) - 1
        assert found == {
            name: [
                (one.message_id, one.key, one.trace_id, START + timedelta(milliseconds=one.created_at))
                for one in partition.log
            ]
            for name, partition in self.model.partitions.items()
        }

    def positions_are_where_they_should_be(self) -> None:
        names = {partition_id: name for name, partition_id in self.partition_ids.items()}
        consumers = {group_id: name for name, group_id in self.group_ids.items()}
        rows = self.run(
            self.database.fetch(
                "SELECT * FROM positions WHERE group_id = ANY ($1)", list(self.group_ids.values())
            )
        )
        assert len(rows) == len(names) * len(consumers), "every group has a position in every partition"
        for row in rows:
            position = self.model.groups[consumers[row["group_id"]]][names[row["partition_id"]]]
            assert row["cursor"] == position.cursor
            done = {offset for r in row["finished"] for offset in range(r.lower, r.upper)}
            assert done == position.beyond
            if position.head is not None:
                assert row["ready_at"] is not None, "messages wait and nobody would ever look"
            attempts = {int(offset): number for offset, number in json.loads(row["attempts"]).items()}
            waiting = {o: n for o, n in attempts.items() if o >= row["cursor"] and o not in done}
            assert waiting == position.attempts
            lease = position.lease_at(self.now)
            if lease:
                assert row["lease_id"] == lease.lease_id
                assert (row["lease_from"], row["lease_to"]) == (lease.start, lease.stop)
                until = START + timedelta(milliseconds=lease.until)
                assert (row["lease_expires_at"], row["ready_at"]) == (until, until)
            else:
                assert row["lease_id"] is None or row["lease_expires_at"] <= self.moment

    def counts_are_exact(self) -> None:
        rows = self.run(
            self.database.fetch("SELECT * FROM queue_gauges_v1($1, $2)", [self.queue_id], self.moment)
        )
        found = {row["group_name"]: (row["depth"], row["running"]) for row in rows}
        expected = {}
        for group in self.model.groups:
            running = self.model.running(group, self.now)
            expected[group] = (self.model.behind(group) - running, running)
        deepest = max((depth for depth, _ in expected.values()), default=self.model.stored)
        expected[""] = (deepest, sum(running for _, running in expected.values()))
        assert found == expected
        [row] = self.run(self.database.fetch("SELECT queue_size_v1($1) AS size", self.queue_id))
        assert row["size"] == self.model.size

    def dead_letters_are_those_given_up_on(self) -> None:
        names = {partition_id: name for name, partition_id in self.partition_ids.items()}
        consumers = {group_id: name for name, group_id in self.group_ids.items()}
        rows = self.run(self.database.fetch("SELECT * FROM dead_letters WHERE queue_id = $1", self.queue_id))
        found = {}
        for row in rows:
            assert row["payload"] == row["message_id"].bytes
            place = (consumers[row["group_id"]], names[row["partition_id"]], row["message_offset"])
            found[place] = DeadLetter(row["transaction_id"], row["error"], row["attempts"])
        assert found == self.model.dead


def gathered(rows: list[Any], names: dict[int, str]) -> list[Given]:
    """The rows of a pop, one entry per request and partition, in the order they were given."""
    found: dict[tuple[int, str], list[Any]] = {}
    for row in rows:
        if row["request"]:
            found.setdefault((row["request"], names[row["partition_id"]]), []).append(row)
    return [
        Given(
            request,
            name,
            parts[0]["leased_from"],
            parts[0]["leased_to"],
            tuple((offset, attempts) for row in parts for _, offset, _, _, attempts in delivered(row)),
        )
        for (request, name), parts in found.items()
    ]


def iso(now: int) -> str:
    return (START + timedelta(milliseconds=now)).isoformat()
