"""Background tasks: start and stop in any order, and errors that end a loop."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import pytest

from penstock.background import BackgroundTask, cancel_and_wait
from tests.deadlines import deadline_s
from tests.waiting import wait_until_async


class Counter(BackgroundTask):
    """Counts how often its loop was entered and left."""

    task_name = "counter"

    def __init__(self, error: Exception | None = None) -> None:
        self.entered = 0
        self.left = 0
        self._error = error

    async def _run(self) -> None:
        self.entered += 1
        try:
            if self._error is not None:
                raise self._error
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.left += 1


class SwallowsCancellation(BackgroundTask):
    """A loop whose library turns the cancellation into another error."""

    task_name = "swallows cancellation"

    async def _run(self) -> None:
        while not self._is_stopping:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue


async def run_event_loop() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_loop_runs_once_however_often_it_is_started() -> None:
    counter = Counter()
    await counter.start()
    await counter.start()
    await run_event_loop()
    assert (counter.entered, counter.left, counter.is_started) == (1, 0, True)
    assert "counter" in {task.get_name() for task in asyncio.all_tasks()}
    await counter.stop()


async def test_stop_waits_until_the_loop_has_ended_and_may_be_repeated() -> None:
    counter = Counter()
    await counter.start()
    await run_event_loop()
    await asyncio.gather(counter.stop(), counter.stop())
    assert (counter.left, counter.is_started) == (1, False)
    await counter.stop()
    assert "counter" not in {task.get_name() for task in asyncio.all_tasks()}


async def test_stop_before_start_does_nothing() -> None:
    counter = Counter()
    await counter.stop()
    await counter.start()
    await run_event_loop()
    assert counter.entered == 1
    await counter.stop()


async def test_a_stopped_loop_can_start_again() -> None:
    counter = Counter()
    for _ in range(2):
        await counter.start()
        await run_event_loop()
        await counter.stop()
    assert (counter.entered, counter.left) == (2, 2)


async def test_a_loop_that_swallows_the_cancellation_ends_too() -> None:
    task = SwallowsCancellation()
    for _ in range(2):
        await task.start()
        await run_event_loop()
        async with asyncio.timeout(deadline_s(5)):
            await task.stop()


async def test_a_task_that_lost_its_cancellation_is_cancelled_again() -> None:
    async def lose_first_cancellation() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    task = asyncio.create_task(lose_first_cancellation())
    await run_event_loop()
    async with asyncio.timeout(deadline_s(5)):
        await cancel_and_wait(task, again_s=0.01)
    assert task.cancelled()


async def test_an_error_that_ends_the_loop_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    counter = Counter(ValueError("no more"))
    await counter.start()

    async def is_logged() -> bool:
        return bool(caplog.records)

    await wait_until_async(is_logged, 5, "the error is logged")
    [record] = caplog.records
    assert (record.levelno, record.getMessage()) == (
        logging.ERROR,
        "The background task 'counter' ended with an error",
    )
    assert "no more" in caplog.text
    await counter.stop()
    assert not counter.is_started
