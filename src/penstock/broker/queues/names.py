"""Names by ids, learned from the database's answers, so that acks need not ask for them every time.

An id is never given out twice and what it stands for is never renamed: what is remembered here may be gone,
but it is not wrong. Whether a lease is in force is never remembered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.broker.queues.id_cache import LIMIT
from penstock.durable.log import Ack, Acked


class Named(NamedTuple):
    queue_id: int
    queue: str
    partition: str
    group: str


class Names:
    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Named] = {}

    def of(self, acks: Sequence[Ack]) -> list[Named] | None:
        """What each of these belongs to, if all of that is known."""
        known = self._known
        try:
            return [known[ack.partition_id, ack.group_id] for ack in acks]
        except KeyError:
            return None

    def learn(self, acks: Sequence[Ack], results: Sequence[Acked]) -> None:
        """Take note of what the database said these belong to."""
        if len(self._known) + len(acks) > LIMIT:
            self._known.clear()
        for ack, (_, queue_id, queue, partition, group, _, _) in zip(acks, results, strict=True):
            if queue_id is not None and queue is not None and partition is not None and group is not None:
                self._known[ack.partition_id, ack.group_id] = Named(queue_id, queue, partition, group)
