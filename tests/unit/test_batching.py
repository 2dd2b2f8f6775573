"""Group commit: which requests share a batch, which fail alone, and what happens to cancelled callers."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence

import pytest

from penstock.batching import Batcher, QueueTimeout, split_results
from penstock.errors import DatabaseUnavailable
from tests.deadlines import deadline_s
from tests.waiting import wait_until_async


class Backend:
    """Executes batches like a database: waits while its gate is closed, and rejects bad items."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.bad_items: set[str] = set()
        self.error: Exception | None = None

    async def execute(self, key: Hashable, items: Sequence[str]) -> list[str]:
        self.batches.append(list(items))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        if rejected := self.bad_items & set(items):
            raise ValueError(f"cannot store {sorted(rejected)}")
        return [item.upper() for item in items]


@pytest.fixture
async def backend() -> Backend:
    return Backend()


@pytest.fixture
async def batcher(backend: Backend) -> Batcher[str, str]:
    return Batcher(backend.execute)


async def run_event_loop(iterations: int = 5) -> None:
    """Let other tasks run, without any time passing."""
    for _ in range(iterations):
        await asyncio.sleep(0)


def submit(batcher: Batcher[str, str], *items: str, key: Hashable = None) -> list[asyncio.Task[str]]:
    return [asyncio.create_task(batcher.submit(key, item)) for item in items]


async def test_a_single_request_executes_at_once(batcher: Batcher[str, str], backend: Backend) -> None:
    [task] = submit(batcher, "a")
    await run_event_loop(3)
    assert backend.batches == [["a"]], "no time had to pass"
    assert await task == "A"


async def test_requests_that_arrive_during_a_batch_share_the_next_batch(
    batcher: Batcher[str, str], backend: Backend
) -> None:
    backend.gate.clear()
    first = submit(batcher, "a")
    await run_event_loop()
    others = submit(batcher, "b", "c", "d")
    await run_event_loop()
    assert (batcher.pending, batcher.in_flight) == (3, 1)
    backend.gate.set()
    assert await asyncio.gather(*first, *others) == ["A", "B", "C", "D"]
    assert backend.batches == [["a"], ["b", "c", "d"]]
    assert (batcher.stats.batches, batcher.stats.requests, batcher.stats.items) == (2, 4, 4)


async def test_two_batches_execute_in_parallel_if_allowed(backend: Backend) -> None:
    batcher = Batcher(backend.execute, max_in_flight=2)
    backend.gate.clear()
    tasks = []
    for item in "abc":
        tasks += submit(batcher, item)
        await run_event_loop()
    assert backend.batches == [["a"], ["b"]]
    backend.gate.set()
    assert await asyncio.gather(*tasks) == ["A", "B", "C"]


async def test_keys_do_not_wait_for_each_other(batcher: Batcher[str, str], backend: Backend) -> None:
    backend.gate.clear()
    tasks = submit(batcher, "a", key=1) + submit(batcher, "b", key=2)
    await run_event_loop()
    assert backend.batches == [["a"], ["b"]]
    backend.gate.set()
    await asyncio.gather(*tasks)
    assert batcher._queues == {}, "nothing is kept of an idle key"


@pytest.mark.parametrize(("max_items", "max_bytes"), [(4, 1_000), (1_000, 40)])
async def test_a_batch_is_bounded_in_items_and_in_bytes(
    backend: Backend, max_items: int, max_bytes: int
) -> None:
    batcher = Batcher(backend.execute, max_items=max_items, max_bytes=max_bytes)
    backend.gate.clear()
    tasks = submit(batcher, "first")
    await run_event_loop()
    sizes = {"a": 2, "b": 2, "c": 1, "huge": 9, "d": 3, "e": 1, "f": 1}
    for item, size in sizes.items():
        tasks.append(asyncio.create_task(batcher.submit(None, item, items=size, size=10 * size)))
    await run_event_loop()
    backend.gate.set()
    await asyncio.gather(*tasks)
    assert backend.batches == [["first"], ["a", "b"], ["c"], ["huge"], ["d", "e"], ["f"]], (
        "a request above the limit executes alone"
    )


async def test_only_the_bad_item_of_a_batch_fails(batcher: Batcher[str, str], backend: Backend) -> None:
    backend.bad_items = {"i5"}
    backend.gate.clear()
    first = submit(batcher, "first")
    await run_event_loop()
    items = [f"i{n}" for n in range(16)]
    tasks = submit(batcher, *items)
    await run_event_loop()
    backend.gate.set()
    results = await asyncio.gather(*first, *tasks, return_exceptions=True)
    failed = [
        item for item, result in zip(["first", *items], results, strict=True) if isinstance(result, Exception)
    ]
    assert failed == ["i5"]
    assert len(backend.batches) <= 1 + 1 + 2 * 4, "the batch is halved, not retried item by item"
    assert [item for batch in backend.batches[-3:] for item in batch][-1] == "i15"


async def test_each_bad_item_gets_its_own_error(batcher: Batcher[str, str], backend: Backend) -> None:
    backend.bad_items = {"a", "d"}
    backend.gate.clear()
    first = submit(batcher, "first")
    await run_event_loop()
    tasks = submit(batcher, "a", "b", "c", "d")
    await run_event_loop()
    backend.gate.set()
    results = await asyncio.gather(*first, *tasks, return_exceptions=True)
    assert [str(result) for result in results] == [
        "FIRST",
        "cannot store ['a']",
        "B",
        "C",
        "cannot store ['d']",
    ]


async def test_an_unavailable_database_fails_all_requests_without_a_retry(
    batcher: Batcher[str, str], backend: Backend
) -> None:
    backend.gate.clear()
    first = submit(batcher, "first")
    await run_event_loop()
    tasks = submit(batcher, "a", "b", "c")
    await run_event_loop()
    backend.error = DatabaseUnavailable("gone; retry shortly")
    backend.gate.set()
    results = await asyncio.gather(*first, *tasks, return_exceptions=True)
    assert all(isinstance(result, DatabaseUnavailable) for result in results)
    assert backend.batches == [["first"], ["a", "b", "c"]]
    backend.error = None
    assert await batcher.submit(None, "d") == "D", "the batcher works again with the database"


async def test_a_call_that_must_not_be_repeated_fails_for_all_requests_of_its_batch(backend: Backend) -> None:
    batcher = Batcher(backend.execute, isolates_failures=False)
    backend.bad_items = {"bad"}
    backend.gate.clear()
    first = submit(batcher, "first")
    await run_event_loop()
    tasks = submit(batcher, "a", "bad", "b")
    await run_event_loop()
    backend.gate.set()
    results = await asyncio.gather(*first, *tasks, return_exceptions=True)
    assert [str(result) for result in results] == ["FIRST", *["cannot store ['bad']"] * 3]
    assert backend.batches == [["first"], ["a", "bad", "b"]]
    assert batcher.stats.failures == 1
    assert await batcher.submit(None, "c") == "C"


def test_each_request_gets_the_results_of_its_own_items() -> None:
    assert split_results([["a", "b"], [], ["c"]], [1, 2, 3]) == [[1, 2], [], [3]]


class AbandonedResults:
    """Records the results whose callers were cancelled."""

    def __init__(self) -> None:
        self.results: list[tuple[Hashable, str, str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def __call__(self, key: Hashable, item: str, result: str) -> None:
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.results.append((key, item, result))


async def test_the_result_of_a_cancelled_caller_is_abandoned(backend: Backend) -> None:
    abandoned = AbandonedResults()
    batcher = Batcher(backend.execute, on_abandoned=abandoned)
    backend.gate.clear()
    first = submit(batcher, "first", key="k")
    await run_event_loop()
    cancelled, waiting = submit(batcher, "cancelled", "waiting", key="k")
    await run_event_loop()
    cancelled.cancel()
    first[0].cancel()
    backend.gate.set()
    assert await waiting == "WAITING"
    await batcher.drain()
    assert abandoned.results == [("k", "first", "FIRST"), ("k", "cancelled", "CANCELLED")]


async def test_a_caller_cancelled_as_its_result_arrives_abandons_the_result(backend: Backend) -> None:
    """Its future has the result, and its task is cancelled before it reads the future."""
    abandoned = AbandonedResults()
    callers: list[asyncio.Task[str]] = []

    async def execute(key: Hashable, items: Sequence[str]) -> list[str]:
        asyncio.get_running_loop().call_soon(callers[0].cancel)
        return [item.upper() for item in items]

    batcher = Batcher(execute, on_abandoned=abandoned)
    callers += submit(batcher, "a")
    with pytest.raises(asyncio.CancelledError):
        await callers[0]
    await batcher.drain()
    assert abandoned.results == [(None, "a", "A")]


@pytest.mark.parametrize("error", [DatabaseUnavailable("gone"), ValueError("no")])
async def test_an_error_while_abandoning_a_result_affects_no_other_request(
    backend: Backend, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    abandoned = AbandonedResults()
    abandoned.error = error
    batcher = Batcher(backend.execute, on_abandoned=abandoned)
    backend.gate.clear()
    first = submit(batcher, "first")
    await run_event_loop()
    cancelled, waiting = submit(batcher, "cancelled", "waiting")
    await run_event_loop()
    last = submit(batcher, "last")
    cancelled.cancel()
    backend.gate.set()
    async with asyncio.timeout(deadline_s(5)):
        assert await asyncio.gather(*first, waiting, *last) == ["FIRST", "WAITING", "LAST"]
        await batcher.drain()
    assert str(error) in caplog.text


async def test_abandoning_a_result_does_not_delay_the_next_batch(backend: Backend) -> None:
    abandoned = AbandonedResults()
    abandoned.gate.clear()
    batcher = Batcher(backend.execute, on_abandoned=abandoned)
    backend.gate.clear()
    [cancelled] = submit(batcher, "cancelled")
    await run_event_loop()
    cancelled.cancel()
    backend.gate.set()
    async with asyncio.timeout(deadline_s(5)):
        assert await batcher.submit(None, "next") == "NEXT"
    abandoned.gate.set()
    await batcher.drain()
    assert abandoned.results == [(None, "cancelled", "CANCELLED")]


async def test_drain_waits_for_pending_requests(batcher: Batcher[str, str], backend: Backend) -> None:
    backend.gate.clear()
    tasks = submit(batcher, "a")
    await run_event_loop()
    tasks += submit(batcher, "b", "c")
    await run_event_loop()
    draining = asyncio.create_task(batcher.drain())
    await run_event_loop()
    assert not draining.done()
    backend.gate.set()
    await draining
    await run_event_loop()
    assert all(task.done() for task in tasks)
    assert (batcher.pending, batcher.in_flight) == (0, 0)
    await batcher.drain()


async def test_an_overdue_request_fails_and_later_ones_execute(backend: Backend) -> None:
    queue_timeout = QueueTimeout(0.05, lambda: DatabaseUnavailable("too late"))
    batcher = Batcher(backend.execute, queue_timeout=queue_timeout)
    backend.gate.clear()
    [first] = submit(batcher, "a")
    await run_event_loop()
    [overdue] = submit(batcher, "b")
    await run_event_loop()
    queued_at = batcher.oldest_batch_s()

    async def is_overdue() -> bool:
        return batcher.oldest_batch_s() > queued_at + 0.06

    await wait_until_async(is_overdue, 5, "the second request is overdue")
    [recent] = submit(batcher, "c")
    await run_event_loop()
    backend.gate.set()
    assert (await first, await recent) == ("A", "C")
    with pytest.raises(DatabaseUnavailable, match="too late"):
        await overdue
    assert backend.batches == [["a"], ["c"]]
    assert (batcher.pending, batcher.oldest_batch_s()) == (0, 0.0)


async def test_full_pending_batches_and_those_in_flight_are_ahead_of_a_new_request(backend: Backend) -> None:
    batcher = Batcher(backend.execute, max_items=2, max_in_flight=2)
    backend.gate.clear()
    assert batcher.batches_ahead() == 0
    submit(batcher, "a")
    await run_event_loop()
    assert batcher.batches_ahead() == 0, "a second batch may be in flight"
    submit(batcher, "b")
    await run_event_loop()
    assert batcher.batches_ahead() == 1, "the next batch starts when one in flight ends"
    submit(batcher, "c")
    await run_event_loop()
    assert batcher.batches_ahead() == 1, "the pending batch has room"
    submit(batcher, "d", "e")
    await run_event_loop()
    assert batcher.batches_ahead() == 2
    backend.gate.set()
    await batcher.drain()
    assert batcher.batches_ahead() == 0


async def test_large_requests_fill_a_batch_and_keys_wait_for_themselves_only(backend: Backend) -> None:
    batcher = Batcher(backend.execute, max_bytes=100)
    backend.gate.clear()
    tasks = submit(batcher, "a")
    await run_event_loop()
    tasks += [asyncio.create_task(batcher.submit(None, text, size=90)) for text in ("b", "c", "d", "e")]
    await run_event_loop()
    assert batcher.batches_ahead() == 1 + 3
    tasks.append(asyncio.create_task(batcher.submit("other", "f")))
    await run_event_loop()
    assert batcher.batches_ahead() == 1 + 1, "two keys share the pending requests"
    backend.gate.set()
    await asyncio.gather(*tasks)


class RecordingReceiver:
    """A receiver that is not a future."""

    def __init__(self, is_done: bool = False) -> None:
        self.is_done = is_done
        self.received: list[str | Exception] = []

    def done(self) -> bool:
        return self.is_done

    def set_result(self, result: str) -> None:
        self.received.append(result)

    def set_exception(self, exception: Exception) -> None:
        self.received.append(exception)


async def test_a_receiver_gets_its_result_without_a_waiting_task(backend: Backend) -> None:
    abandoned = AbandonedResults()
    batcher = Batcher(backend.execute, on_abandoned=abandoned)
    backend.bad_items = {"x"}
    successful, failing, disconnected = (
        RecordingReceiver(),
        RecordingReceiver(),
        RecordingReceiver(is_done=True),
    )
    for item, receiver in (("a", successful), ("x", failing), ("b", disconnected)):
        batcher.put(None, item, receiver)
    assert (successful.received, batcher.pending) == ([], 3)
    await batcher.drain()
    assert (successful.received, disconnected.received) == (["A"], [])
    assert [result for _, _, result in abandoned.results] == ["B"]
    [error] = failing.received
    assert isinstance(error, ValueError)
