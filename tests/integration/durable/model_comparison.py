"""Comparison of one queue in the database with its model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from penstock.durable.pool import Database
from tests.integration.durable.queue_model import DeadLetter, QueueModel

T = TypeVar("T")

START = datetime(2030, 1, 1, tzinfo=UTC)


class ModelComparison:
    """A queue, its model, and the assertions that both have the same state at the time `now`."""

    def __init__(self, runner: asyncio.Runner, database: Database, name: str) -> None:
        self.runner = runner
        self.database = database
        self.name = name
        self.model = QueueModel()
        self.now = 0
        self.queue_id = 0
        self.partition_ids: dict[str, int] = {}
        self.group_ids: dict[str, int] = {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @property
    def timestamp(self) -> datetime:
        return START + timedelta(milliseconds=self.now)

    def compare(self) -> None:
        self.compare_log()
        self.compare_positions()
        self.compare_counts()
        self.compare_dead_letters()

    def compare_log(self) -> None:
        rows = self.run(
            self.database.fetch(
                """SELECT t.name, t.next_offset, l.*
                   FROM partitions t LEFT JOIN log l ON l.partition_id = t.id
                   WHERE t.queue_id = $1 ORDER BY t.id, l.first_offset""",
                self.queue_id,
            )
        )
        stored_logs: dict[str, list[tuple[Any, ...]]] = {}
        for row in rows:
            stored = stored_logs.setdefault(row["name"], [])
            assert row["next_offset"] == len(self.model.partitions[row["name"]].log)
            if row["first_offset"] is None:
                continue
            assert row["first_offset"] == len(stored), "a gap or an overlap between segments"
            chosen = row["transaction_ids"] or [None] * len(row["message_ids"])
            traces = row["trace_ids"] or [None] * len(row["message_ids"])
            for message_id, key, trace, payload in zip(
                row["message_ids"], chosen, traces, row["payloads"], strict=True
            ):
                partition = self.model.partitions[row["name"]]
                deleted = len(stored) in partition.deleted
                assert payload == (b"null" if deleted else partition.log[len(stored)].payload)
                stored.append((message_id, key, trace, row["created_at"]))
            assert row["last_offset"] == len(stored) - 1
        assert stored_logs == {
            name: [
                (m.message_id, m.key, m.trace_id, START + timedelta(milliseconds=m.created_at))
                for m in partition.log
            ]
            for name, partition in self.model.partitions.items()
        }

    def compare_positions(self) -> None:
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
            finished = {offset for r in row["finished"] for offset in range(r.lower, r.upper)}
            assert finished == position.finished_beyond_cursor
            if position.head is not None:
                assert row["ready_at"] is not None, "messages wait in a position that no pop would read"
            attempts = {int(offset): number for offset, number in json.loads(row["attempts"]).items()}
            waiting = {o: n for o, n in attempts.items() if o >= row["cursor"] and o not in finished}
            assert waiting == position.attempts
            lease = position.live_lease(self.now)
            if lease:
                assert row["lease_id"] == lease.lease_id
                assert (row["lease_from"], row["lease_to"]) == (lease.start, lease.stop)
                expires_at = START + timedelta(milliseconds=lease.expires_at)
                assert (row["lease_expires_at"], row["ready_at"]) == (expires_at, expires_at)
            else:
                assert row["lease_id"] is None or row["lease_expires_at"] <= self.timestamp

    def compare_counts(self) -> None:
        rows = self.run(
            self.database.fetch("SELECT * FROM queue_gauges_v1($1, $2)", [self.queue_id], self.timestamp)
        )
        gauges = {row["group_name"]: (row["depth"], row["running"]) for row in rows}
        expected = {}
        for group in self.model.groups:
            running = self.model.running(group, self.now)
            expected[group] = (self.model.unfinished(group) - running, running)
        deepest = max((depth for depth, _ in expected.values()), default=self.model.stored)
        expected[""] = (deepest, sum(running for _, running in expected.values()))
        assert gauges == expected
        [row] = self.run(self.database.fetch("SELECT queue_size_v1($1) AS size", self.queue_id))
        assert row["size"] == self.model.size

    def compare_dead_letters(self) -> None:
        names = {partition_id: name for name, partition_id in self.partition_ids.items()}
        consumers = {group_id: name for name, group_id in self.group_ids.items()}
        rows = self.run(self.database.fetch("SELECT * FROM dead_letters WHERE queue_id = $1", self.queue_id))
        dead_letters = {}
        for row in rows:
            key = (consumers[row["group_id"]], names[row["partition_id"]], row["message_offset"])
            assert row["payload"] == self.model.partitions[key[1]].log[key[2]].payload
            dead_letters[key] = DeadLetter(row["transaction_id"], row["error"], row["attempts"])
        assert dead_letters == self.model.dead
