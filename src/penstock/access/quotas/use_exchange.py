"""Exchange what each broker process uses of the quotas, through Redis.

Every subject has a hash in Redis with one field per process. A process writes its own field and reads the
others, in one round trip for all subjects. No clocks are compared: a field counts while its number changes.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence

import msgspec
from redis.asyncio import Redis

from penstock.access.quotas.quota_subject import ProcessUse, QuotaSubject

KEY_PREFIX = "penstock:quotas:use:"
TIMEOUT_S = 1.0
STALE_S = 6.0
"""How long a process counts after its last report: three times the interval of reports without use."""
KEY_LIFETIME_S = 60

_use_decoder = msgspec.json.Decoder(ProcessUse)


class UseExchange:
    """Reports of this process to the others, and what it knows of theirs."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._process_id = uuid.uuid4().hex
        self._number = 0
        self._last_changes: dict[tuple[str, str], tuple[int, float]] = {}
        """The number of the last report, and when it arrived, by subject and process."""

    async def exchange(self, subjects: Sequence[QuotaSubject]) -> None:
        """Report the use of subjects and apply that of the other processes.

        Raises RedisError, OSError or TimeoutError; then the subjects keep what they have.
        """
        self._number += 1
        pipeline = self._redis.pipeline(transaction=False)
        for subject in subjects:
            key = KEY_PREFIX + subject.key
            pipeline.hset(key, self._process_id, msgspec.json.encode(subject.measure(self._number)))
            pipeline.hgetall(key)
            pipeline.expire(key, KEY_LIFETIME_S)
        async with asyncio.timeout(TIMEOUT_S):
            replies = await pipeline.execute()
        now_s = time.monotonic()
        stale_names: dict[str, list[str]] = {}
        for subject, fields in zip(subjects, replies[1::3], strict=True):
            reports = {
                name.decode(): _use_decoder.decode(report)
                for name, report in fields.items()
                if name.decode() != self._process_id
            }
            live_names = {
                name for name, use in reports.items() if self._is_live(subject.key, name, use, now_s)
            }
            subject.apply_peers([use for name, use in reports.items() if name in live_names])
            subject.is_first_process = self._process_id == min({self._process_id, *live_names})
            if dead_names := list(reports.keys() - live_names):
                stale_names[subject.key] = dead_names
        if stale_names:
            await self._remove(stale_names)

    def _is_live(self, key: str, name: str, use: ProcessUse, now_s: float) -> bool:
        number, changed_s = self._last_changes.get((key, name), (-1, now_s))
        if use.number != number:
            self._last_changes[key, name] = (use.number, now_s)
            return True
        return now_s - changed_s < STALE_S

    async def leave(self, subjects: Sequence[QuotaSubject]) -> None:
        """Take back the reports of this process, because it stops. Raises as `exchange` does."""
        await self._remove({subject.key: [self._process_id] for subject in subjects})

    async def _remove(self, names_by_key: dict[str, list[str]]) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        for key, names in names_by_key.items():
            pipeline.hdel(KEY_PREFIX + key, *names)
            for name in names:
                self._last_changes.pop((key, name), None)
        async with asyncio.timeout(TIMEOUT_S):
            await pipeline.execute()
