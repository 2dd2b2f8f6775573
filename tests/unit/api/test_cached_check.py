"""A check runs once for many requests, and no request waits for one that hangs."""

from __future__ import annotations

import asyncio

from penstock.api.cached_check import CachedCheck
from penstock.errors import DatabaseUnavailable
from tests.waiting import wait_until_async


async def test_concurrent_requests_share_one_check_and_later_ones_its_result() -> None:
    runs = 0

    async def check() -> str:
        nonlocal runs
        runs += 1
        await asyncio.sleep(0)
        return "answering"

    cached = CachedCheck(check)
    results = await asyncio.gather(*(cached.read() for _ in range(50)))
    results.append(await cached.read())
    assert {(result["status"], result["detail"]) for result in results} == {("up", "answering")}
    assert runs == 1


async def test_a_failed_check_has_the_reason() -> None:
    async def check() -> str:
        raise DatabaseUnavailable("PostgreSQL did not respond.")

    assert await CachedCheck(check).read() == {"status": "down", "detail": "PostgreSQL did not respond."}


async def test_a_check_that_hangs_is_down_for_every_request_and_is_not_started_again() -> None:
    answered = asyncio.Event()
    runs = 0

    async def check() -> str:
        nonlocal runs
        runs += 1
        await answered.wait()
        return "answering"

    cached = CachedCheck(check)
    assert (await cached.read(0.01))["detail"] == "no response yet"
    assert (await cached.read())["detail"] == "no response for 2 s"
    assert (await cached.read())["status"] == "down"
    assert runs == 1
    answered.set()

    async def is_up() -> bool:
        return (await cached.read())["status"] == "up"

    await wait_until_async(is_up, 10, "the check ends")


async def test_a_slow_check_does_not_change_the_last_result_at_once() -> None:
    delay_s = 0.0

    async def check() -> str:
        await asyncio.sleep(delay_s)
        return "answering"

    cached = CachedCheck(check, max_age_s=0)
    assert (await cached.read())["status"] == "up"
    delay_s = 60
    assert (await cached.read(0.01))["status"] == "up"
    await cached.stop()
