"""A search returns what a filter over all pushed messages returns, whatever its steps are."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import asyncpg
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.queues.log_search import MessageSearch, SearchCursor, SearchLimits, payload_texts
from penstock.durable import log
from penstock.durable.dead_letters.dead_letter_store import DeadLetterStore
from penstock.durable.message_search_store import MessageSearchStore, SearchFilter
from penstock.durable.pool import Database
from penstock.durable.storage import retention
from penstock.durable.stored_messages import ListedMessage, StoredMessages
from penstock.encryption import PayloadCipher
from tests.integration.databases import cloned_database
from tests.integration.durable.queue_under_test import QueueUnderTest
from tests.integration.durable.storage.chunk_steps import reclaim, rotate, upkeep

KEYS = ["$.orderId", "$.items[*].sku", '$."odd name"']
CIPHER = PayloadCipher("k1:" + "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")


@dataclass(frozen=True)
class PushedMessage:
    """What the test knows of a message that is kept."""

    partition_id: int
    offset: int
    message_id: str
    transaction_id: str
    payload: bytes
    created_at: datetime
    status: str

    @property
    def text(self) -> str:
        return CIPHER.decrypt(self.payload).decode()


@dataclass
class SearchedQueue:
    queue: QueueUnderTest
    group_ids: dict[int, int | None]
    messages: list[PushedMessage]


async def configure_keys(queue: QueueUnderTest, keys: list[str]) -> None:
    await queue.database.fetch(
        "SELECT * FROM configure_queue_v1($1, $2, $3, $4, $5)",
        *queue.scope,
        queue.name,
        json.dumps({"index_keys": keys}),
    )


def payload_of(number: int) -> str:
    order = str(number % 7) if number % 2 else number % 7
    items = [{"sku": f"S{number % 3}"}, {"sku": f"S{number % 5}"}, {"sku": None}]
    document = {"orderId": order, "items": items, "odd name": number % 4 == 0, "city": "Zürich"}
    if number % 9 == 0:
        document["note"] = "a NUL: \0"
    return json.dumps(document, ensure_ascii=number % 2 == 0)


async def fill(queue: QueueUnderTest) -> None:
    """Push to three partitions in segments of several sizes over an hour, in two chunks; encrypt some."""
    await queue.group()
    await configure_keys(queue, KEYS)
    number = 0
    async with upkeep(queue.database) as session:
        for chunk in range(2):
            if chunk:
                await rotate(session)
            for size in (1, 1, 4, 7, 2):
                for partition in ("a", "b", "c"):
                    payloads = [payload_of(number + i) for i in range(size)]
                    keys = [f"t{number + i}" if (number + i) % 3 else None for i in range(size)]
                    segment = await queue.segment(payloads, partition, keys)
                    if number % 11 == 0:
                        segment = replace(segment, payloads=[CIPHER.encrypt(p) for p in segment.payloads])
                    await log.push(queue.database, [segment], queue.now)
                    number += size
                    queue.later(120_000)


async def consume(queue: QueueUnderTest) -> None:
    """Finish some messages, let some die, lease some, delete one, and drop the first of a partition."""
    queue.lease_ms = 3_600_000
    delivery = await queue.pop(9, partition="a")
    await queue.ack(delivery, "dlq", 1, 4)
    await queue.ack(delivery, "completed", 0, 2, 3, 6)
    await queue.pop(5, partition="b")
    partition_id = (await queue.partition("b")).partition_id
    row = await queue.database.fetchrow(
        "SELECT coalesce(transaction_ids[1], message_ids[1]::text) FROM log WHERE partition_id = $1 LIMIT 1",
        partition_id,
    )
    assert row is not None
    assert await StoredMessages(queue.database).delete(partition_id, row[0], queue.now)
    await queue.database.fetch(
        "UPDATE partitions SET low_offset = 3 WHERE id = $1", (await queue.partition("c")).partition_id
    )


async def read_all(queue: QueueUnderTest) -> list[PushedMessage]:
    """Read every kept message, with the state that `message_states_v1` computes one by one."""
    rows = await queue.database.fetch(
        """SELECT l.partition_id, l.first_offset + m.i - 1 AS message_offset, m.id,
                  coalesce(m.key, m.id::text) AS transaction_id, m.payload, l.created_at, s.status
           FROM log l JOIN partitions t ON t.id = l.partition_id
           CROSS JOIN LATERAL unnest(l.message_ids, l.transaction_ids, l.payloads) WITH ORDINALITY
                      AS m (id, key, payload, i)
           CROSS JOIN LATERAL message_states_v1(l.partition_id, l.first_offset + m.i - 1) s
           WHERE l.first_offset + m.i - 1 >= t.low_offset AND NOT EXISTS (
               SELECT 1 FROM deleted_messages d
               WHERE d.partition_id = l.partition_id AND d.message_offset = l.first_offset + m.i - 1)
           ORDER BY l.partition_id, 2 DESC"""
    )
    return [PushedMessage(row[0], row[1], str(row[2]), *row[3:]) for row in rows]


@pytest_asyncio.fixture(scope="module")
async def searched(
    postgres_url: str, administrator: asyncpg.Connection, template: str
) -> AsyncIterator[SearchedQueue]:
    async with cloned_database(administrator, postgres_url, template) as url:
        database = Database(url, 3)
        queue = QueueUnderTest(database)
        await fill(queue)
        await consume(queue)
        group = await queue.group()
        yield SearchedQueue(queue, {group.queue_id: group.group_id}, await read_all(queue))
        await database.close()


@dataclass(frozen=True)
class Criteria:
    """The filters of one search."""

    partition: int | None
    status: str | None
    first_minute: int | None
    minutes: int | None
    text: str | None
    message: int | None
    transaction: int | None


criteria = st.builds(
    Criteria,
    partition=st.none() | st.integers(0, 2),
    status=st.none() | st.sampled_from(["pending", "processing", "completed", "dead_letter"]),
    first_minute=st.none() | st.integers(0, 60),
    minutes=st.none() | st.integers(0, 40),
    text=st.none() | st.sampled_from(["s2", '"OrderId": "3"', "ZÜRICH"[:1] + "ü", "absent", "items"]),
    message=st.none() | st.integers(0, 200),
    transaction=st.none() | st.integers(0, 200),
)
limits = st.builds(
    SearchLimits,
    step_s=st.sampled_from([0.0, 5.0]),
    partitions=st.integers(1, 4),
    messages=st.integers(1, 60),
    max_bytes=st.sampled_from([1, 400, 100_000]),
    response_bytes=st.sampled_from([1, 100_000]),
    counted_partitions=st.integers(1, 3),
)


def to_filter(searched: SearchedQueue, wanted: Criteria) -> SearchFilter:
    messages = searched.messages
    partition_ids = sorted({message.partition_id for message in messages})
    begin = min(message.created_at for message in messages)
    start = None if wanted.first_minute is None else begin + timedelta(minutes=wanted.first_minute)
    end = None if wanted.minutes is None else (start or begin) + timedelta(minutes=wanted.minutes)
    return SearchFilter(
        searched.group_ids,
        None if wanted.partition is None else partition_ids[wanted.partition],
        wanted.status,
        start,
        end,
        None if wanted.message is None else uuid.UUID(messages[wanted.message % len(messages)].message_id),
        None if wanted.transaction is None else messages[wanted.transaction % len(messages)].transaction_id,
        None if wanted.text is None else payload_texts(wanted.text),
    )


def matches(search: SearchFilter, message: PushedMessage) -> bool:
    return (
        search.partition_id in (None, message.partition_id)
        and search.status in (None, message.status)
        and (search.start is None or search.start <= message.created_at)
        and (search.end is None or message.created_at < search.end)
        and (search.message_id is None or str(search.message_id) == message.message_id)
        and search.transaction_id in (None, message.transaction_id)
        and (search.texts is None or any(text in message.text.lower() for text in search.texts))
    )


async def run_search(
    queue: QueueUnderTest, search: SearchFilter, search_limits: SearchLimits, limit: int
) -> tuple[list[ListedMessage], SearchCursor]:
    """Repeat the step until the search ends; every step makes progress."""
    searches = MessageSearch(MessageSearchStore(queue.database), CIPHER, search_limits)
    results: list[ListedMessage] = []
    cursor: SearchCursor | None = None
    for _ in range(2_000):
        step = await searches.step(search, cursor, limit)
        assert len(step.matches) <= limit
        results += step.matches
        if step.next_cursor is None:
            return results, step.progress
        assert step.next_cursor != cursor
        cursor = SearchCursor.parse(step.next_cursor.to_text())
    raise AssertionError("the search does not end")


def places(messages: list[ListedMessage]) -> list[tuple[int, int, str]]:
    return [(message.partition_id, message.message_offset, message.status) for message in messages]


@given(wanted=criteria, search_limits=limits, limit=st.integers(1, 30))
@settings(max_examples=150, derandomize=True, deadline=None, database=None)
async def test_a_search_returns_what_a_filter_over_all_messages_returns(
    searched: SearchedQueue, wanted: Criteria, search_limits: SearchLimits, limit: int
) -> None:
    search = to_filter(searched, wanted)
    expected = [(m.partition_id, m.offset, m.status) for m in searched.messages if matches(search, m)]
    results, progress = await run_search(searched.queue, search, search_limits, limit)
    assert places(results) == expected
    assert progress.examined <= progress.total


async def test_the_bounds_are_the_times_of_the_messages_to_the_microsecond(queue: QueueUnderTest) -> None:
    group = await queue.group()
    await log.push(queue.database, [await queue.segment([payload_of(1)], "a", [None])])
    [message] = await read_all(queue)
    start, end = (
        SearchFilter({group.queue_id: group.group_id}, start=bounds[0], end=bounds[1])
        for bounds in ((message.created_at, None), (None, message.created_at))
    )
    assert len((await run_search(queue, start, SearchLimits(), 5))[0]) == 1, "pushed at or after its own time"
    assert (await run_search(queue, end, SearchLimits(), 5))[0] == [], "not pushed before its own time"


async def test_progress_counts_every_message_once(searched: SearchedQueue) -> None:
    search = SearchFilter(searched.group_ids, texts=payload_texts("absent"))
    results, progress = await run_search(searched.queue, search, SearchLimits(step_s=0, messages=7), 5)
    count = len(searched.messages)
    assert (results, progress.examined, progress.total, progress.is_exact) == ([], count, count, 1)


def indexed_values(text: str, key: str) -> set[str]:
    document = json.loads(text)
    values = {
        "$.orderId": [document["orderId"]],
        "$.items[*].sku": [item["sku"] for item in document["items"]],
        '$."odd name"': [document["odd name"]],
    }[key]
    return {value if isinstance(value, str) else json.dumps(value) for value in values if value is not None}


@given(
    key=st.sampled_from(KEYS),
    value=st.sampled_from(["0", "3", "6", "S0", "S4", "true", "false", "", "null"]),
    wanted=criteria,
    search_limits=limits,
    limit=st.integers(1, 30),
)
@settings(max_examples=100, derandomize=True, deadline=None, database=None)
async def test_the_index_returns_what_a_filter_over_all_messages_returns(
    searched: SearchedQueue, key: str, value: str, wanted: Criteria, search_limits: SearchLimits, limit: int
) -> None:
    search = replace(to_filter(searched, wanted), key=key, value=value)
    expected = [
        (message.partition_id, message.offset, message.status)
        for message in searched.messages
        if matches(search, message)
        and message.payload.startswith(b"{")  # encrypted payloads are not indexed
        and "\\u0000" not in message.text  # nor those that jsonb cannot hold
        and value in indexed_values(message.text, key)
    ]
    results, _ = await run_search(searched.queue, search, search_limits, limit)
    assert places(results) == expected


async def count_indexed(queue: QueueUnderTest) -> int:
    row = await queue.database.fetchrow("SELECT count(*) FROM message_values")
    assert row is not None
    return int(row[0])


async def test_indexed_values_are_dropped_with_their_chunk_and_moved_with_their_messages(
    queue: QueueUnderTest,
) -> None:
    await queue.group()
    await configure_keys(queue, ["$.n"])
    await queue.push(*(json.dumps({"n": n}) for n in range(10)))
    other = QueueUnderTest(queue.database, "kept")
    await other.group()
    await configure_keys(other, ["$.n"])
    await other.push('{"n": 1}')
    async with upkeep(queue.database) as session:
        await rotate(session)
        assert await count_indexed(queue) == 11
        await queue.configure(retention_enabled=True, retention_ms=1)
        queue.later(10_000)
        await retention.apply_retention(queue.database, 0, queue.now)
        search = SearchFilter({(await queue.partition()).queue_id: None}, key="$.n", value="1")
        assert (await run_search(queue, search, SearchLimits(), 10))[0] == []
        await reclaim(session, 1)
    assert await count_indexed(queue) == 1
    search = SearchFilter({(await other.partition()).queue_id: None}, key="$.n", value="1")
    [match], _ = await run_search(other, search, SearchLimits(), 10)
    assert match.payload == b'{"n": 1}'


async def test_messages_pushed_before_a_key_was_declared_are_not_indexed(queue: QueueUnderTest) -> None:
    await queue.push('{"n": 1}')
    await configure_keys(queue, ["$.n"])
    await configure_keys(queue, ["$.m", "$.n"])
    await queue.push('{"n": 1, "m": 1}', keys=["x"])
    assert (await queue.push('{"n": 1}', keys=["x"])).duplicates, "a duplicate is not indexed"
    assert await count_indexed(queue) == 2
    await configure_keys(queue, [])
    await queue.push('{"n": 1}')
    assert await count_indexed(queue) == 2


async def test_a_requeued_dead_letter_is_indexed(queue: QueueUnderTest) -> None:
    await queue.group()
    await configure_keys(queue, ["$.n"])
    await queue.push('{"n": 1}')
    await queue.ack(await queue.pop(), "dlq")
    row = await queue.database.fetchrow("SELECT id FROM dead_letters")
    assert row is not None
    await DeadLetterStore(queue.database).requeue([row["id"]], queue.now, audience="group")
    assert await count_indexed(queue) == 2
