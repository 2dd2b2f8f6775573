"""A read that all requests share."""

from __future__ import annotations

import asyncio

import pytest

from penstock.api.live.shared_read import MAX_PAUSE_S, PAUSE_FACTOR, SharedRead


class CountedRead:
    """Returns how often it was called, after a time that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.takes_s = 0.0
        self.calls = 0
        self.error: Exception | None = None
        self.started = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, previous: int | None) -> int:
        assert previous == (self.calls or None)
        self.started.set()
        await self.gate.wait()
        self.now += self.takes_s
        if self.error is not None:
            raise self.error
        self.calls += 1
        return self.calls


@pytest.fixture
def read() -> CountedRead:
    return CountedRead()


@pytest.fixture
def shared(read: CountedRead) -> SharedRead[int]:
    return SharedRead(read, 2.0, monotonic=lambda: read.now)


async def test_requests_within_the_age_share_one_read(read: CountedRead, shared: SharedRead[int]) -> None:
    assert await asyncio.gather(*(shared.get() for _ in range(5))) == [1] * 5
    read.now = 1.9
    assert await shared.get() == 1
    read.now = 2.0
    assert await shared.get() == 2


@pytest.mark.parametrize(("takes_s", "pause_s"), [(1.0, PAUSE_FACTOR), (60.0, MAX_PAUSE_S)])
async def test_a_slow_read_is_followed_by_a_pause(
    read: CountedRead, shared: SharedRead[int], takes_s: float, pause_s: float
) -> None:
    read.takes_s = takes_s
    assert await shared.get() == 1
    read.now = takes_s + pause_s - 0.1
    assert await shared.get() == 1
    read.now = takes_s + pause_s
    assert await shared.get() == 2


async def test_a_newer_result_comes_from_a_read_that_starts_afterwards(
    read: CountedRead, shared: SharedRead[int]
) -> None:
    assert await shared.get() == 1
    assert await shared.get_newer() == 2
    read.gate.clear()
    read.now = 5.0
    running = asyncio.create_task(shared.get())
    read.started.clear()
    await read.started.wait()
    newer = [asyncio.create_task(shared.get_newer()) for _ in range(3)]
    read.gate.set()
    assert await running == 3
    assert await asyncio.gather(*newer) == [4] * 3


async def test_a_request_that_may_not_wait_gets_the_last_result(
    read: CountedRead, shared: SharedRead[int]
) -> None:
    read.gate.clear()
    assert await shared.get_within(0.001) is None
    read.gate.set()
    assert await shared.get() == 1
    read.gate.clear()
    read.now = 5.0
    assert await shared.get_within(0.001) == 1
    read.gate.set()
    assert await shared.get() == 2


async def test_an_error_reaches_the_request_and_the_next_one_reads_again(
    read: CountedRead, shared: SharedRead[int]
) -> None:
    read.error = ValueError("away")
    with pytest.raises(ValueError, match="away"):
        await shared.get()
    read.error = None
    assert await shared.get() == 1


async def test_a_stopped_read_is_cancelled(read: CountedRead, shared: SharedRead[int]) -> None:
    read.gate.clear()
    request = asyncio.create_task(shared.get())
    await read.started.wait()
    await shared.stop()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert not shared.is_running
