"""Group commit: what travels together, what fails alone, and what happens to callers that leave."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence

import pytest

from penstock.batching import Batcher, QueueTimeout
from penstock.errors import DatabaseUnavailable
from tests.waiting import wait_until_async


class Backend:
    """Executes batches as a database would: takes its time until let go, and refuses what is bad."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.bad: set[str] = set()
        self.error: Exception | None = None

    async def execute(self, key: Hashable, items: Sequence[str]) -> list[str]:
        self.batches.append(list(items))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        if culprits := self.bad & set(items):
            raise ValueError(f"cannot take {sorted(culprits)}")
        return [item.upper() for item in items]


@pytest.fixture
async def backend() -> Backend:
    return Backend()


@pytest.fixture
async def batcher(backend: Backend) -> Batcher[str, str]:
    return Batcher(backend.execute)


async def steps(count: int = 5) -> None:
    """Let the event loop turn, without any time passing."""
    for _ in range(count):
        await asyncio.sleep(0)


def submit(batcher: Batcher[str, str], *items: str, key: Hashable = None) -> list[asyncio.Task[str]]:
    return [asyncio.create_task(batcher.submit(key, item)) for item in items]


async def test_a_lone_request_runs_at_once(batcher: Batcher[str, str], backend: Backend) -> None:
    [task] = submit(batcher, "a")
    await steps(3)
    assert backend.batches == [["a"]], "no clock had to move"
    assert await task == "A"


async def test_what_arrives_while_a_batch_is_under_way_travels_together(
    batcher: Batcher[str, str], backend: Backend
) -> None:
    backend.gate.clear()
    first = submit(batcher, "a")
    await steps()
    others = submit(batcher, "b", "c", "d")
    await steps()
    assert (batcher.pending, batcher.in_flight) == (3, 1)
    backend.gate.set()
    assert await asyncio.gather(*first, *others) == ["A", "B", "C", "D"]
    assert backend.batches == [["a"], ["b", "c", "d"]]
    assert (batcher.stats.batches, batcher.stats.requests, batcher.stats.items) == (2, 4, 4)


async def test_two_batches_may_be_under_way_if_that_is_allowed(backend: Backend) -> None:
    batcher = Batcher(backend.execute, max_in_flight=2)
    backend.gate.clear()
    tasks = []
    for item in "abc":
        tasks += submit(batcher, item)
        await steps()
    assert backend.batches == [["a"], ["b"]]
    backend.gate.set()
    assert await asyncio.gather(*tasks) == ["A", "B", "C"]


async def test_keys_do_not_wait_for_each_other(batcher: Batcher[str, str], backend: Backend) -> None:
    backend.gate.clear()
    tasks = submit(batcher, "a", key=1) + submit(batcher, "b", key=2)
    await steps()
    assert backend.batches == [["a"], ["b"]]
    backend.gate.set()
    await asyncio.gather(*tasks)
    assert batcher._queues == {}, "a key that is done with is forgotten"


@pytest.mark.parametrize("limit", [{"max_items": 4}, {"max_bytes": 40}])
async def test_a_batch_is_bounded_in_items_and_in_bytes(backend: Backend, limit: dict[str, int]) -> None:
    batcher: Batcher[str, str] = Batcher(backend.execute, **limit)
    backend.gate.clear()
    tasks = submit(batcher, "first")
    await steps()
    sizes = {"a": 2, "b": 2, "c": 1, "huge": 9, "d": 3, "e": 1, "f": 1}
    for item, size in sizes.items():
        tasks.append(asyncio.create_task(batcher.submit(None, item, items=size, size=10 * size)))
    await steps()
    backend.gate.set()
    await asyncio.gather(*tasks)
    assert backend.batches == [["first"], ["a", "b"], ["c"], ["huge"], ["d", "e"], ["f"]], (
        "one too big goes alone"
    )


async def test_only_the_culprit_of_a_failing_batch_fails(
    batcher: Batcher[str, str], backend: Backend
) -> None:
    backend.bad = {"i5"}
    backend.gate.clear()
    first = submit(batcher, "first")
    await steps()
    items = [f"i{n}" for n in range(16)]
    tasks = submit(batcher, *items)
    await steps()
    backend.gate.set()
    results = await asyncio.gather(*first, *tasks, return_exceptions=True)
    failed = [
        item for item, result in zip(["first", *items], results, strict=True) if isinstance(result, Exception)
    ]
    assert failed == ["i5"]
    assert len(backend.batches) <= 1 + 1 + 2 * 4, "halved, not tried one by one"
    assert [item for batch in backend.batches[-3:] for item in batch][-1] == "i15"


async def test_each_of_several_culprits_gets_its_own_error(
    batcher: Batcher[str, str], backend: Backend
) -> None:
    backend.bad = {"a", "d"}
    backend.gate.clear()
    first = submit(batcher, "first")
    await steps()
    tasks = submit(batcher, "a", "b", "c", "d")
    await steps()
    backend.gate.set()
    results = await asyncio.gather(*first, *tasks, return_exceptions=True)
    assert [str(result) for result in results] == [
        "FIRST",
        "cannot take ['a']",
        "B",
        "C",
        "cannot take ['d']",
    ]


async def test_when_the_database_is_away_all_are_told_and_nothing_is_tried_again(
    batcher: Batcher[str, str], backend: Backend
) -> None:
    backend.gate.clear()
    first = submit(batcher, "first")
    await steps()
    tasks = submit(batcher, "a", "b", "c")
    await steps()
    backend.error = DatabaseUnavailable("gone; retry shortly")
    backend.gate.set()
    results = await asyncio.gather(*first, *tasks, return_exceptions=True)
    assert all(isinstance(result, DatabaseUnavailable) for result in results)
    assert backend.batches == [["first"], ["a", "b", "c"]]
    backend.error = None
    assert await batcher.submit(None, "d") == "D", "it goes on when the database is back"


class Undone:
    """Remembers what was given back because its caller had left."""

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


async def test_the_result_of_a_caller_that_left_is_given_back(backend: Backend) -> None:
    undone = Undone()
    batcher = Batcher(backend.execute, on_abandoned=undone)
    backend.gate.clear()
    first = submit(batcher, "first", key="k")
    await steps()
    leaving, staying = submit(batcher, "leaving", "staying", key="k")
    await steps()
    leaving.cancel()
    first[0].cancel()
    backend.gate.set()
    assert await staying == "STAYING"
    await batcher.drain()
    assert undone.results == [("k", "first", "FIRST"), ("k", "leaving", "LEAVING")]


async def test_a_caller_that_leaves_the_moment_its_result_comes_loses_nothing(backend: Backend) -> None:
    """Its future has the result, and its task is cancelled before it can take it."""
    undone = Undone()
    callers: list[asyncio.Task[str]] = []

    async def execute(key: Hashable, items: Sequence[str]) -> list[str]:
        asyncio.get_running_loop().call_soon(callers[0].cancel)
        return [item.upper() for item in items]

    batcher = Batcher(execute, on_abandoned=undone)
    callers += submit(batcher, "a")
    with pytest.raises(asyncio.CancelledError):
        await callers[0]
    await batcher.drain()
    assert undone.results == [(None, "a", "A")]


@pytest.mark.parametrize("error", [DatabaseUnavailable("gone"), ValueError("no")])
async def test_trouble_while_giving_back_costs_nobody_else_anything(
    backend: Backend, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    undone = Undone()
    undone.error = error
    batcher = Batcher(backend.execute, on_abandoned=undone)
    backend.gate.clear()
    first = submit(batcher, "first")
    await steps()
    leaving, staying = submit(batcher, "leaving", "staying")
    await steps()
    later = submit(batcher, "later")
    leaving.cancel()
    backend.gate.set()
    async with asyncio.timeout(5):
        assert await asyncio.gather(*first, staying, *later) == ["FIRST", "STAYING", "LATER"]
        await batcher.drain()
    assert str(error) in caplog.text


async def test_giving_back_does_not_hold_up_the_next_batch(backend: Backend) -> None:
    undone = Undone()
    undone.gate.clear()
    batcher = Batcher(backend.execute, on_abandoned=undone)
    backend.gate.clear()
    [leaving] = submit(batcher, "leaving")
    await steps()
    leaving.cancel()
    backend.gate.set()
    async with asyncio.timeout(5):
        assert await batcher.submit(None, "next") == "NEXT"
    undone.gate.set()
    await batcher.drain()
    assert undone.results == [(None, "leaving", "LEAVING")]


async def test_drain_waits_for_what_is_waiting_too(batcher: Batcher[str, str], backend: Backend) -> None:
    backend.gate.clear()
    tasks = submit(batcher, "a")
    await steps()
    tasks += submit(batcher, "b", "c")
    await steps()
    draining = asyncio.create_task(batcher.drain())
    await steps()
    assert not draining.done()
    backend.gate.set()
    await draining
    await steps()
    assert all(task.done() for task in tasks)
    assert (batcher.pending, batcher.in_flight) == (0, 0)
    await batcher.drain()


async def test_who_has_waited_too_long_is_told_and_those_behind_are_served(backend: Backend) -> None:
    patience = QueueTimeout(0.05, lambda: DatabaseUnavailable("too late"))
    batcher: Batcher[str, str] = Batcher(backend.execute, queue_timeout=patience)
    backend.gate.clear()
    [first] = submit(batcher, "a")
    await steps()
    [late] = submit(batcher, "b")

    async def too_late() -> bool:
        return batcher.oldest_wait_s() > 0.06

    await wait_until_async(too_late, 5, "the second has waited too long")
    [fresh] = submit(batcher, "c")
    await steps()
    backend.gate.set()
    assert (await first, await fresh) == ("A", "C")
    with pytest.raises(DatabaseUnavailable, match="too late"):
        await late
    assert backend.batches == [["a"], ["c"]]
    assert (batcher.pending, batcher.oldest_wait_s()) == (0, 0.0)


class Told:
    """A receiver that is no future."""

    def __init__(self, gone: bool = False) -> None:
        self.gone = gone
        self.heard: list[str | Exception] = []

    def done(self) -> bool:
        return self.gone

    def set_result(self, result: str) -> None:
        self.heard.append(result)

    def set_exception(self, exception: Exception) -> None:
        self.heard.append(exception)


async def test_who_does_not_wait_is_told(backend: Backend) -> None:
    given_back: list[str] = []

    async def abandoned(key: Hashable, item: str, result: str) -> None:
        given_back.append(result)

    batcher = Batcher(backend.execute, on_abandoned=abandoned)
    backend.bad = {"x"}
    stays, fails, left = Told(), Told(), Told(gone=True)
    for item, receiver in (("a", stays), ("x", fails), ("b", left)):
        batcher.put(None, item, receiver)
    assert (stays.heard, batcher.pending) == ([], 3)
    await batcher.drain()
    assert (stays.heard, left.heard, given_back) == (["A"], [], ["B"])
    [error] = fails.heard
    assert isinstance(error, ValueError)
