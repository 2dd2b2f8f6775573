"""The quotas of all environments and tokens in this broker process.

Callers get their quotas when their first request arrives, and again whenever tokens or environments change.
A caller without quotas has None, so its requests cost nothing here. In the background the process exchanges
its use with the other processes and warns when a quota is nearly used up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple
from weakref import WeakSet, WeakValueDictionary

from redis.asyncio import Redis
from redis.exceptions import RedisError

from penstock.access.quotas.enforced_quotas import EnforcedQuotas
from penstock.access.quotas.environment_use import EnvironmentUse
from penstock.access.quotas.quota_definitions import (
    PARTITIONS,
    QUEUES,
    QUOTAS,
    STORED_BYTES,
    STORED_MESSAGES,
    WARNING_SHARE,
)
from penstock.access.quotas.quota_subject import QuotaSubject
from penstock.access.quotas.use_exchange import UseExchange
from penstock.access.quotas.use_sampler import CountTasks, UseSampler
from penstock.access.token_index import TokenIndex
from penstock.background import BackgroundTask
from penstock.caller import Caller
from penstock.durable.pool import Session
from penstock.model import Scope

logger = logging.getLogger(__name__)

EXCHANGE_INTERVAL_S = 0.1
IDLE_INTERVAL_S = 2.0
"""How often the use of subjects that this process does not use is exchanged."""
WARNING_ENDS_AT = 0.7
"""A quota warns again after its use has fallen below this share of the limit."""
_STORAGE_QUOTAS = {QUEUES, PARTITIONS, STORED_MESSAGES, STORED_BYTES}
_EXCHANGE_ERRORS = (RedisError, OSError, TimeoutError)


class QuotaReading(NamedTuple):
    """A quota with its limit and what all brokers use of it; None: not sampled yet."""

    quota: str
    limit: float
    used: float | None

    @property
    def is_warning(self) -> bool:
        return self.used is not None and self.used >= self.limit * WARNING_SHARE


class QuotaRegistry(BackgroundTask):
    """Gives callers their quotas. `process_count` is the number of processes until others are known."""

    task_name = "quotas"

    def __init__(
        self,
        tokens: TokenIndex,
        session: Session,
        redis: Redis,
        count_tasks: CountTasks,
        *,
        process_count: int = 1,
    ) -> None:
        self._tokens = tokens
        self._process_count = process_count
        self._exchange = UseExchange(redis)
        self._environments: dict[Scope, QuotaSubject] = {}
        self._token_subjects: dict[str, QuotaSubject] = {}
        self._uses: dict[Scope, EnvironmentUse] = {}
        self._callers: WeakSet[Caller] = WeakSet()
        self._sampler = UseSampler(session, self._uses, count_tasks)
        self._has_subjects = asyncio.Event()
        self._refused: defaultdict[Scope, Counter[str]] = defaultdict(Counter)
        self._creation_locks: WeakValueDictionary[Scope, asyncio.Lock] = WeakValueDictionary()
        self._warned: set[tuple[str, str]] = set()
        self._is_redis_away = False
        self._idle_exchange_s = 0.0

    async def start(self) -> None:
        self._tokens.on_environments_changed = self.refresh
        self.refresh()
        await self._sampler.start()
        await super().start()

    async def stop(self) -> None:
        """Stop, and leave the callers without quotas."""
        await super().stop()
        await self._sampler.stop()
        with suppress(*_EXCHANGE_ERRORS):
            await self._exchange.leave(list(self._subjects()))
        for caller in self._callers:
            caller.quotas, caller.has_known_quotas = None, False
        self._callers.clear()

    def attach(self, caller: Caller) -> None:
        """Set the quotas of a caller, and keep them up to date from now on."""
        caller.has_known_quotas = True
        self._callers.add(caller)
        caller.quotas = self._quotas_of(caller)

    def refresh(self) -> None:
        """Take over the quotas of all environments and tokens, after a change."""
        limits = {known.scope: known.quotas for known in self._tokens.environments() if known.quotas}
        for scope in self._environments.keys() - limits.keys():
            del self._environments[scope]
        for scope, environment_limits in limits.items():
            name = "/".join(scope)
            subject = self._environments.get(scope)
            if subject is None:
                subject = self._new_subject(f"environment:{name}", f"environment {name}", scope)
                self._environments[scope] = subject
            subject.set_limits(_supported(environment_limits))
            self._has_subjects.set()
        callers = [caller for caller in self._callers if caller.active]
        self._callers = WeakSet(callers)
        live_token_ids = {caller.token_id for caller in callers if caller.token_quotas}
        for token_id in self._token_subjects.keys() - live_token_ids:
            del self._token_subjects[token_id]
        self._reset_uses(callers)
        for scope, subject in self._environments.items():
            self._use_of(scope, [subject])
        for caller in callers:
            caller.quotas = self._quotas_of(caller)

    def _reset_uses(self, callers: list[Caller]) -> None:
        """Stop sampling environments whose storage is not limited any more, or whose bytes are not."""
        limited_scopes = {
            scope for scope, subject in self._environments.items() if subject.limits.keys() & _STORAGE_QUOTAS
        }
        limited_scopes |= {
            caller.environment for caller in callers if caller.token_quotas.keys() & _STORAGE_QUOTAS
        }
        for scope in self._uses.keys() - limited_scopes:
            del self._uses[scope]
        for use in self._uses.values():
            use.has_byte_limit = False

    def _quotas_of(self, caller: Caller) -> EnforcedQuotas | None:
        subjects = [
            subject
            for subject in (self._token_subject(caller), self._environments.get(caller.environment))
            if subject is not None
        ]
        if not subjects:
            return None
        self._has_subjects.set()
        return EnforcedQuotas(subjects, self._use_of(caller.environment, subjects))

    def _token_subject(self, caller: Caller) -> QuotaSubject | None:
        if not caller.token_quotas or caller.token_id is None:
            return None
        subject = self._token_subjects.get(caller.token_id)
        if subject is None:
            label = caller.subject.replace(":", " ", 1)
            subject = self._new_subject(f"token:{caller.token_id}", label, caller.environment)
            self._token_subjects[caller.token_id] = subject
        subject.set_limits(_supported(caller.token_quotas))
        return subject

    def _new_subject(self, key: str, label: str, scope: Scope) -> QuotaSubject:
        return QuotaSubject(key, label, self._refused[scope], self._process_count)

    def _use_of(self, scope: Scope, subjects: list[QuotaSubject]) -> EnvironmentUse:
        """Return the use of an environment. It is sampled if one of the subjects limits storage."""
        limited_quotas = {quota for subject in subjects for quota in subject.limits}
        use = self._uses.get(scope)
        if use is None and not limited_quotas & _STORAGE_QUOTAS:
            return EnvironmentUse()
        if use is None:
            use = self._uses[scope] = EnvironmentUse()
            self._sampler.notify()
        if STORED_BYTES in limited_quotas and not use.has_byte_limit:
            use.has_byte_limit = True
            self._sampler.notify()
        return use

    def _subjects(self) -> Iterator[QuotaSubject]:
        yield from self._environments.values()
        yield from self._token_subjects.values()

    def creation_lock(self, scope: Scope) -> asyncio.Lock:
        """Return the lock under which this process creates run queues of an environment."""
        return self._creation_locks.setdefault(scope, asyncio.Lock())

    def read_environment(self, scope: Scope) -> list[QuotaReading]:
        """Return the quotas of an environment."""
        return self._read(self._environments.get(scope), scope)

    def read_token(self, caller: Caller) -> list[QuotaReading]:
        """Return the quotas of the caller's token."""
        return self._read(self._token_subjects.get(caller.token_id or ""), caller.environment)

    def read_limited_environments(self) -> dict[Scope, list[QuotaReading]]:
        """Return the quotas of all environments that have some."""
        return {scope: self.read_environment(scope) for scope in self._environments}

    def refused_counts(self) -> dict[tuple[Scope, str], int]:
        """Return how many requests this process refused, by environment and quota."""
        return {
            (scope, quota): count
            for scope, counts in self._refused.items()
            for quota, count in counts.items()
        }

    def _read(self, subject: QuotaSubject | None, scope: Scope) -> list[QuotaReading]:
        if subject is None:
            return []
        use = self._uses.get(scope, EnvironmentUse())
        readings = []
        for quota in QUOTAS:
            if quota in subject.limits:
                used = use.read_use(quota) if quota in _STORAGE_QUOTAS else subject.read_use(quota)
                readings.append(QuotaReading(quota, subject.limits[quota], used))
        return readings

    async def _run(self) -> None:
        while not self._is_stopping:
            await self._has_subjects.wait()
            await asyncio.sleep(EXCHANGE_INTERVAL_S)
            try:
                await self._exchange_use()
                self._warn()
            except Exception:
                # Without this loop every process would enforce the whole limit for itself.
                logger.exception("The use of quotas was not exchanged")

    async def _exchange_use(self) -> None:
        """Exchange the use of busy subjects, and of all from time to time."""
        now_s = time.monotonic()
        is_full_round = now_s - self._idle_exchange_s >= IDLE_INTERVAL_S
        subjects = [subject for subject in self._subjects() if is_full_round or not subject.is_idle]
        if is_full_round:
            self._idle_exchange_s = now_s
        if not subjects:
            if not self._environments and not self._token_subjects:
                self._has_subjects.clear()
            return
        try:
            await self._exchange.exchange(subjects)
            self._is_redis_away = False
        except _EXCHANGE_ERRORS as error:
            if not self._is_redis_away:
                logger.warning("Each broker process enforces its share of the quotas: no Redis (%s)", error)
            self._is_redis_away = True
            for subject in self._subjects():
                subject.apply_equal_shares()

    def _warn(self) -> None:
        """Log quotas of environments that are nearly used up, once until their use has fallen again."""
        for scope, readings in self.read_limited_environments().items():
            for reading in readings:
                key = ("/".join(scope), reading.quota)
                if reading.is_warning and key not in self._warned:
                    self._warned.add(key)
                    if not self._environments[scope].is_first_process:
                        continue
                    logger.warning(
                        "Environment %s uses %.0f of %.0f %s (quota %s). "
                        "At the limit the broker refuses requests.",
                        *(key[0], reading.used, reading.limit, QUOTAS[reading.quota].unit, reading.quota),
                    )
                elif reading.used is None or reading.used < reading.limit * WARNING_ENDS_AT:
                    self._warned.discard(key)


def _supported(limits: Mapping[str, float]) -> dict[str, float]:
    """Return the limits that this version knows; a newer one may have stored others."""
    return {quota: limit for quota, limit in limits.items() if quota in QUOTAS}
