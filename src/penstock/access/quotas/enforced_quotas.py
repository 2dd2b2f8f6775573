"""The quotas that apply to one caller: those of its token and of its environment."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.access.quotas.environment_use import EnvironmentUse
from penstock.access.quotas.quota_definitions import (
    BYTES_PER_SECOND,
    PARTITIONS,
    QUEUES,
    STORED_BYTES,
    STORED_MESSAGES,
)
from penstock.access.quotas.quota_subject import QuotaSubject
from penstock.errors import QuotaExceeded
from penstock.model import CreationLimits

STORAGE_RETRY_S = 5.0
"""Retry-After of requests that need room: storage is sampled every few seconds."""


class QuotaConnection:
    """One client connection. It counts for the caller whose request came last."""

    __slots__ = ("quotas",)

    def __init__(self) -> None:
        self.quotas: EnforcedQuotas | None = None

    def close(self) -> None:
        """Stop counting the connection. May be called twice."""
        quotas, self.quotas = self.quotas, None
        if quotas is not None:
            for subject in quotas.subjects:
                subject.connections -= 1


class WaitingPop:
    """A pop that waits, until `end`."""

    __slots__ = ("_subjects",)

    def __init__(self, subjects: Sequence[QuotaSubject]) -> None:
        self._subjects = subjects

    def end(self) -> None:
        """Stop counting the pop. May be called twice."""
        subjects, self._subjects = self._subjects, ()
        for subject in subjects:
            subject.waiting_pops -= 1


class EnforcedQuotas:
    """Checks requests of a caller. Every method is quick and waits for nothing."""

    __slots__ = (
        "_max_partitions",
        "_max_queues",
        "_storage_limits",
        "limits_bytes",
        "limits_queues",
        "limits_storage",
        "subjects",
        "use",
    )

    def __init__(self, subjects: Sequence[QuotaSubject], use: EnvironmentUse) -> None:
        self.subjects = tuple(subjects)
        self.use = use
        self._max_queues = _smallest(QUEUES, subjects)
        self._max_partitions = _smallest(PARTITIONS, subjects)
        self._storage_limits = [
            (subject, quota, subject.limits[quota])
            for subject in subjects
            for quota in (STORED_MESSAGES, STORED_BYTES)
            if quota in subject.limits
        ]
        # Plain attributes, because hot requests read them.
        self.limits_bytes = any(BYTES_PER_SECOND in subject.limits for subject in subjects)
        self.limits_queues = self._max_queues is not None
        self.limits_storage = bool(self._storage_limits)

    def admit_request(self, size: int, connection: QuotaConnection | None) -> None:
        """Count a request, its body and its connection. Raises QuotaExceeded.

        The token comes first: a request that the environment refuses counts for the token.
        """
        if connection is not None and connection.quotas is not self:
            self._count_connection(connection)
        for subject in self.subjects:
            subject.admit(size)

    def _count_connection(self, connection: QuotaConnection) -> None:
        connection.close()
        counted_subjects: list[QuotaSubject] = []
        try:
            for subject in self.subjects:
                subject.add_connection()
                counted_subjects.append(subject)
        except QuotaExceeded:
            for subject in counted_subjects:
                subject.connections -= 1
            raise
        connection.quotas = self

    def add_bytes(self, size: int) -> None:
        """Count bytes of a response, or of a request whose size was not known when it was admitted."""
        for subject in self.subjects:
            subject.add_bytes(size)

    def admit_messages(self, messages: int, size: int) -> None:
        """Count messages or tasks that will be stored. Raises QuotaExceeded; then nothing was counted."""
        use = self.use
        for subject, quota, limit in self._storage_limits:
            total = use.stored_messages + messages if quota is STORED_MESSAGES else use.stored_bytes + size
            if total > limit:
                raise subject.refusal(quota, STORAGE_RETRY_S)
        use.added_messages += messages
        use.added_bytes += size

    def start_waiting(self) -> WaitingPop:
        """Count a pop that starts to wait. Raises QuotaExceeded; then nothing was counted."""
        counted_subjects: list[QuotaSubject] = []
        waiting_pop = WaitingPop(counted_subjects)
        try:
            for subject in self.subjects:
                subject.add_waiting_pop()
                counted_subjects.append(subject)
        except QuotaExceeded:
            waiting_pop.end()
            raise
        return waiting_pop

    @property
    def creation_limits(self) -> CreationLimits | None:
        """How many durable queues and partitions the environment may have; None: no limit."""
        if self._max_queues is None and self._max_partitions is None:
            return None
        max_queues = None if self._max_queues is None else max(self._max_queues - self.use.run_queues, 0)
        return CreationLimits(max_queues, self._max_partitions)

    def check_run_queue(self, run_queues: int) -> None:
        """Raise QuotaExceeded unless one more run queue is allowed, besides this many."""
        if self._max_queues is not None and self.use.durable_queues + run_queues >= self._max_queues:
            raise self.creation_refusal(QUEUES)

    def creation_refusal(self, quota: str) -> QuotaExceeded:
        """Return the error of a queue or partition beyond the smallest limit."""
        limited_subjects = [subject for subject in self.subjects if quota in subject.limits]
        strictest = min(limited_subjects, key=lambda subject: subject.limits[quota])
        return strictest.refusal(quota, STORAGE_RETRY_S)


def _smallest(quota: str, subjects: Sequence[QuotaSubject]) -> int | None:
    limits = [int(subject.limits[quota]) for subject in subjects if quota in subject.limits]
    return min(limits, default=None)
