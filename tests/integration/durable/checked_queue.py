"""One queue in the database and its model: every step runs on both, and the results are compared."""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections.abc import Coroutine, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import pytest

from penstock.durable import log
from penstock.durable.consumer_groups import ConsumerGroups
from penstock.durable.log import Ack, AckReceipt, PartitionName, PopRequest, Segment
from penstock.durable.pool import Database
from penstock.durable.stored_messages import StoredMessages
from penstock.errors import TransactionFailed
from penstock.model import DEFAULT_SCOPE
from tests.integration.durable.model_comparison import START, ModelComparison
from tests.integration.durable.queue_model import (
    AckRequest,
    Lease,
    Options,
    PoppedBatch,
)
from tests.integration.durable.queue_under_test import (
    create_group,
    delivered_messages,
    single_pop_row_as_segment,
)

LEASE_MS = 1_000
UNKNOWN_PARTITION = "unknown"
UNKNOWN_PARTITION_ID = 10**12


@dataclass(frozen=True)
class PopHandle:
    """A consumer's view of a pop. Handles are kept forever, so they also produce stale acks."""

    group: str
    lease_id: uuid.UUID
    messages: tuple[tuple[str, str], ...]  # partition, transaction id

    def message(self, number: int) -> tuple[str, str]:
        return self.messages[number % len(self.messages)]


@dataclass(frozen=True)
class AckChoice:
    """One ack by numbers; which message they select depends on the pops so far."""

    handle: int
    message: int
    status: str
    wrong_message: int


class CheckedQueue(ModelComparison):
    """Runs each step on the database and on the model, and compares their results."""

    def __init__(self, runner: asyncio.Runner, database: Database, name: str) -> None:
        super().__init__(runner, database, name)
        self.handles: list[PopHandle] = []
        self.ack_calls = 0

    def create(self, options: Options, existing: Sequence[str]) -> None:
        self.add_partitions(existing)
        self.model.options = options
        changes = ", ".join(f"{name} = ${number}" for number, name in enumerate(asdict(options), 2))
        query = f"UPDATE queues SET {changes} WHERE id = $1"
        self.run(self.database.fetch(query, self.queue_id, *asdict(options).values()))

    # Database access

    def new_id(self) -> uuid.UUID:
        """Return a message id of the current time, by which the broker finds the message again."""
        random = uuid.uuid4()
        ms = int(self.timestamp.timestamp() * 1000)
        return uuid.UUID(int=ms << 80 | 7 << 76 | random.int & ((1 << 76) - 1))

    def add_partitions(self, names: Sequence[str]) -> None:
        keys = [PartitionName(self.name, name) for name in names]
        created = self.run(log.ensure_partitions(self.database, DEFAULT_SCOPE, keys))
        for key, ids in created.items():
            self.partition_ids[key.partition] = ids.partition_id
            self.queue_id = ids.queue_id
            self.model.add_partition(key.partition)

    def add_group(self, name: str, subscription: str | int = "all") -> None:
        text = subscription if isinstance(subscription, str) else iso(subscription)
        ids = self.run(create_group(self.database, self.name, name, text))
        self.group_ids[name] = ids.group_id
        self.model.add_group(name, subscription)

    def segments(
        self, keys_by_partition: dict[str, list[str | None]]
    ) -> tuple[list[Segment], list[tuple[str, list[tuple[uuid.UUID, str | None]]]]]:
        """Return the same messages for the database and for the model."""
        stored: list[Segment] = []
        modelled: list[tuple[str, list[tuple[uuid.UUID, str | None]]]] = []
        for name, chosen in keys_by_partition.items():
            ids = [self.new_id() for _ in chosen]
            modelled.append((name, list(zip(ids, chosen, strict=True))))
            payloads = [message_id.bytes for message_id in ids]
            traces = [message_id if key else None for message_id, key in zip(ids, chosen, strict=True)]
            stored.append(
                Segment(
                    self.partition_ids[name],
                    [str(message_id) for message_id in ids],
                    list(chosen),
                    traces,
                    payloads,
                )
            )
        return stored, modelled

    def acks(self, requests: Sequence[AckRequest]) -> list[Ack]:
        return [
            Ack(
                self.partition_ids.get(s.partition, UNKNOWN_PARTITION_ID),
                self.group_ids[s.group],
                s.lease_id,
                s.transaction_id,
                s.status,
                s.error,
            )
            for s in requests
        ]

    def ack_requests(self, choices: Sequence[AckChoice]) -> list[AckRequest]:
        """Return the choices as acks. Most are of popped messages; some are of messages of another lease."""
        requests = []
        for choice in choices if self.handles else ():
            handle = self.recent(choice.handle)
            partition, transaction_id = handle.message(choice.message)
            if choice.wrong_message:
                other = self.recent(choice.wrong_message).message(choice.message)
                partition, transaction_id = [
                    (partition, other[1]),
                    other,
                    (UNKNOWN_PARTITION, transaction_id),
                    (partition, "unknown"),
                ][choice.wrong_message % 4]
            error = None if choice.status == "completed" else f"no {self.now}"
            requests.append(
                AckRequest(partition, handle.group, handle.lease_id, transaction_id, choice.status, error)
            )
        return requests

    def recent(self, number: int) -> PopHandle:
        handles = self.handles[-5:]
        return handles[-1 - number % len(handles)]

    # Steps

    def advance_time(self, ms: int) -> None:
        self.now += ms

    def subscribe(self, name: str, subscription: str | int) -> None:
        self.add_group(name, subscription)

    def push(self, keys_by_partition: dict[str, list[str | None]]) -> None:
        self.add_partitions(list(keys_by_partition))
        segments, modelled = self.segments(keys_by_partition)
        pushed = self.run(log.push(self.database, segments, self.timestamp))
        first_offsets, duplicates, refused = self.model.push(modelled, self.now)
        assert pushed.first_offsets == first_offsets
        assert pushed.duplicates == duplicates
        assert pushed.refused == refused

    def pop(
        self, group: str, sizes: list[tuple[int, int]], partition_name: str | None, auto_ack: bool
    ) -> None:
        self.add_group(group)
        if partition_name is not None:
            self.add_partitions([partition_name])
        requests = [PopRequest(uuid.uuid4(), batch, width) for batch, width in sizes]
        rows = self.run(
            log.pop(
                self.database,
                self.group_ids[group],
                requests,
                partition_id=self.partition_ids[partition_name] if partition_name else None,
                lease_ms=LEASE_MS,
                auto_ack=auto_ack,
                now=self.timestamp,
            )
        )
        self.check_pop(group, requests, partition_name, auto_ack, rows)

    def pop_batch(self, group: str, batch: int) -> None:
        """Pop as most consumers do."""
        self.pop(group, [(batch, 1)], None, False)

    def pop_singly(self, group: str, requests: int) -> None:
        """Pop for consumers that get one message at a time."""
        self.add_group(group)
        pop_requests = [PopRequest(uuid.uuid4(), 1) for _ in range(requests)]
        rows = self.run(
            log.pop_single(
                self.database,
                self.group_ids[group],
                [request.lease_id for request in pop_requests],
                lease_ms=LEASE_MS,
                now=self.timestamp,
            )
        )
        self.check_pop(group, pop_requests, None, False, [single_pop_row_as_segment(row) for row in rows])

    def pop_and_crash(self, group: str, batch: int) -> None:
        """Pop for a consumer that never acks."""
        self.pop(group, [(batch, 1)], None, False)
        self.now += LEASE_MS

    def ack_whole_pop(self, number: int) -> None:
        if self.handles:
            self.ack_all(self.recent(number))

    def ack_some(self, number: int, indexes: set[int], status: str) -> None:
        """Ack some messages of a pop with the same status."""
        if self.handles:
            handle = self.recent(number)
            chosen = dict.fromkeys(handle.message(index) for index in indexes)
            self.ack([AckRequest(p, handle.group, handle.lease_id, t, status) for p, t in chosen])

    def ack_choices(self, choices: list[AckChoice]) -> None:
        self.ack(self.ack_requests(choices))

    def ack(self, requests: list[AckRequest]) -> None:
        results = self.run(self.execute_acks(self.acks(requests)))
        outcomes, released = zip(*self.model.ack(requests, self.now), strict=True) if requests else ((), ())
        assert tuple(result.outcome for result in results) == outcomes
        for result, ended in zip(results, released, strict=True):
            if result.outcome not in ("lease_lost", "not_leased"):
                assert result.lease_released == ended

    async def execute_acks(self, acks: Sequence[Ack]) -> list[AckReceipt]:
        """Call one of the functions that the broker calls: in turns where both can execute these acks."""
        self.ack_calls += 1
        leases = log.group_by_lease(acks)
        if leases is None or self.ack_calls % 2:
            return await log.ack(self.database, acks, self.timestamp)
        receipts: list[AckReceipt] = []
        results = await log.ack_completed(self.database, leases, self.timestamp)
        for lease, result in zip(leases, results, strict=True):
            if isinstance(result, int):
                receipts += [AckReceipt("completed", lease_released=True)] * len(lease.transaction_ids)
            else:
                receipts += result
        return receipts

    def ack_all(self, handle: PopHandle) -> None:
        self.ack([AckRequest(p, handle.group, handle.lease_id, t, "completed") for p, t in handle.messages])

    def transact(self, choices: list[AckChoice], keys_by_partition: dict[str, list[str | None]]) -> None:
        self.add_partitions(list(keys_by_partition) or list(self.partition_ids))
        requests = self.ack_requests(choices)
        segments, modelled = self.segments(keys_by_partition)
        trial = copy.deepcopy(self.model)
        _, duplicates, refused = trial.push(modelled, self.now)
        outcomes = [outcome for outcome, _ in trial.ack(requests, self.now)]
        failed = [index for index, outcome in enumerate(outcomes) if outcome in ("lease_lost", "not_leased")]
        work = log.transaction(self.database, segments, self.acks(requests), self.timestamp)
        if refused:
            self.refuse(work, "push", min(refused), "queue_full")
        elif failed:
            self.refuse(work, "ack", failed[0], outcomes[failed[0]])
        else:
            receipt = self.run(work)
            assert (receipt.duplicates, receipt.outcomes) == (duplicates, outcomes)
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
        [end] = self.run(log.extend_leases(self.database, leases, self.timestamp))
        expected = self.model.extend(handle.group, handle.lease_id, ms, self.now)
        assert (end and end.isoformat()) == (expected and iso(expected))

    def release(self, number: int) -> None:
        """Release a lease, as the broker does when the consumer disconnects before the response."""
        if not self.handles:
            return
        handle = self.recent(number)
        names = {partition for partition, _ in handle.messages}
        ids = [self.partition_ids[name] for name in names]
        released = self.run(
            log.release_lease(self.database, self.group_ids[handle.group], handle.lease_id, ids)
        )
        assert released == self.model.release(handle.group, handle.lease_id, names)

    def seek(self, group: str, target: str | int, partition_name: str | None) -> None:
        if group not in self.group_ids or (partition_name and partition_name not in self.partition_ids):
            return
        text = target if isinstance(target, str) else iso(target)
        partition_id = self.partition_ids[partition_name] if partition_name else None
        moved = self.run(ConsumerGroups(self.database).seek(self.group_ids[group], text, partition_id))
        expected = self.model.seek(
            group, [partition_name] if partition_name else list(self.partition_ids), target
        )
        assert (moved.forward, moved.back) == expected

    def delete(self, name: str, number: int) -> None:
        stored = self.stored(name, number)
        if stored:
            offset, transaction_id = stored
            work = StoredMessages(self.database).delete(
                self.partition_ids[name], transaction_id, self.timestamp
            )
            assert self.run(work) == self.model.delete(name, offset, self.now)

    def declare_dead(self, name: str, number: int, group: str) -> None:
        stored = self.stored(name, number)
        if stored and group in self.group_ids:
            key = (self.partition_ids[name], self.group_ids[group], stored[0])
            outcome = self.run(StoredMessages(self.database).declare_dead(*key, "enough", self.timestamp))
            assert outcome == self.model.declare_dead(group, name, stored[0], "enough", self.now)

    def retry(self, number: int, group: str | None) -> None:
        """Push a dead message again; without dead letters, try it with a message that is not dead."""
        dead_letters = sorted(self.model.dead) or [
            ("", name, 0) for name, p in self.model.partitions.items() if p.log
        ]
        if dead_letters and (group is None or group in self.group_ids):
            _, name, offset = dead_letters[number % len(dead_letters)]
            transaction_id = self.model.partitions[name].log[offset].transaction_id
            group_id = self.group_ids[group] if group else None
            new = self.new_id()
            rows = self.run(
                self.database.fetch(
                    """SELECT r.* FROM (
                           SELECT array_agg(id) AS ids, array_agg($4::uuid) AS message_ids
                           FROM message_dead_letters_v1($1, $2) WHERE group_id = coalesce($3, group_id)) d
                       CROSS JOIN LATERAL requeue_dead_letters_v1(d.ids, d.message_ids, 'all', $5) r""",
                    self.partition_ids[name],
                    transaction_id,
                    group_id,
                    new,
                    self.timestamp,
                )
            )
            [outcome] = {row["outcome"] for row in rows} or {"not_dead"}
            assert outcome == self.model.retry(name, offset, group, new, self.now)

    def stored(self, name: str, number: int) -> tuple[int, str] | None:
        """Return offset and transaction id of one of a partition's messages."""
        partition = self.model.partitions.get(name)
        if partition is None or not partition.log:
            return None
        offset = number % len(partition.log)
        return offset, partition.log[offset].transaction_id

    def drain(self) -> None:
        """Pop and ack all messages, in order."""
        for group in self.group_ids:
            for _ in range(4 * self.model.stored + 4):
                if not self.model.unfinished(group):
                    break
                self.now += 5_000
                known = len(self.handles)
                self.pop(group, [(100, len(self.partition_ids))], None, False)
                for handle in self.handles[known:]:
                    self.ack_all(handle)
            assert not self.model.unfinished(group), "a message is stuck"

    # Check of a pop

    def check_pop(
        self,
        group: str,
        requests: list[PopRequest],
        partition_name: str | None,
        auto_ack: bool,
        rows: list[Any],
    ) -> None:
        model, now = self.model, self.now
        names = {partition_id: name for name, partition_id in self.partition_ids.items()}
        names_read = [partition_name] if partition_name else list(self.partition_ids)
        slots = [number for number, request in enumerate(requests, 1) for _ in range(request.width)]
        due = [name for name in names_read if model.is_due(group, name, now)]
        expired: dict[str, list[int]] = {}
        for row in rows:
            if not row["request"]:
                skipped = expired.setdefault(names[row["partition_id"]], [])
                skipped += range(row["leased_from"], row["leased_to"])
        for name, skipped in expired.items():
            model.expire(group, name, skipped, now)
        batches = popped_batches(rows, names)
        starts = self.cursors(group) | {batch.partition: batch.start for batch in batches}
        for name, start in starts.items():
            if model.is_poisoned(group, name, now) and start > model.groups[group][name].cursor:
                model.declare_first_message_dead(group, name, now)
        if len(due) <= len(slots):
            for name in due:
                assert not model.is_poisoned(group, name, now), f"the first message of {name} should be dead"
                if model.is_due(group, name, now):
                    assert model.expired_until(group, name, now) is None, f"{name} should have expired"

        ready = sum(model.is_deliverable(group, name, now) for name in names_read)
        served = slots[:ready]
        assert len({batch.partition for batch in batches}) == len(batches), "a partition was leased twice"
        for number, request in enumerate(requests, 1):
            own_batches = [batch for batch in batches if batch.request == number]
            lease_id = request.lease_id
            assert isinstance(lease_id, uuid.UUID)
            remaining = request.batch
            for batch in own_batches:
                lease = Lease(lease_id, batch.start, batch.stop, now, now + LEASE_MS)
                model.deliver(group, batch, remaining, None if auto_ack else lease, now)
                remaining -= batch.stop - batch.start
            expected = served.count(number)
            assert len(own_batches) == expected or (remaining == 0 and len(own_batches) < expected)
            if own_batches and not auto_ack:
                self.handles.append(self.handle(group, lease_id, own_batches))

    def handle(self, group: str, lease_id: uuid.UUID, batches: list[PoppedBatch]) -> PopHandle:
        logs = {name: partition.log for name, partition in self.model.partitions.items()}
        return PopHandle(
            group,
            lease_id,
            tuple(
                (batch.partition, logs[batch.partition][offset].transaction_id)
                for batch in batches
                for offset, _ in batch.delivered
            ),
        )

    def cursors(self, group: str) -> dict[str, int]:
        names = {partition_id: name for name, partition_id in self.partition_ids.items()}
        query = "SELECT partition_id, cursor FROM positions WHERE group_id = $1"
        rows = self.run(self.database.fetch(query, self.group_ids[group]))
        return {names[row["partition_id"]]: row["cursor"] for row in rows}


def popped_batches(rows: list[Any], names: dict[int, str]) -> list[PoppedBatch]:
    """Group the rows of a pop by request and partition, in their order."""
    rows_by_request: dict[tuple[int, str], list[Any]] = {}
    for row in rows:
        if row["request"]:
            rows_by_request.setdefault((row["request"], names[row["partition_id"]]), []).append(row)
    return [
        PoppedBatch(
            request,
            name,
            batch_rows[0]["leased_from"],
            batch_rows[0]["leased_to"],
            tuple(
                (offset, attempts)
                for row in batch_rows
                for _, offset, _, _, attempts in delivered_messages(row)
            ),
        )
        for (request, name), batch_rows in rows_by_request.items()
    ]


def iso(now: int) -> str:
    return (START + timedelta(milliseconds=now)).isoformat()
