"""Configuring and deleting queues, here and in what every broker remembers of them."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.broker.context import BrokerContext
from penstock.broker.queues.name_registry import RUN_QUEUE
from penstock.durable import catalog, consumer_groups, options
from penstock.durable.notifications import News
from penstock.durable.options import Configured
from penstock.errors import WrongState
from penstock.model import Scope

EVERYONE = 100_000
"""More pops than wait anywhere: all of them look again."""


class QueueAdmin:
    def __init__(self, context: BrokerContext, news: News) -> None:
        self._context = context
        self._news = news

    async def configure(
        self,
        scope: Scope,
        queue: str,
        given: Mapping[str, object],
        *,
        namespace: str | None = None,
        task: str | None = None,
    ) -> Configured:
        """Set options of a queue, all or none; what is left out stays, a new queue has the defaults.

        In force here at once and in other brokers within moments: they are told, and messages that wait
        follow. Raises InvalidRequest naming the option that cannot be, WrongState for encryption without
        a key and for a run queue's name.
        """
        changes: dict[str, int | bool | str] = {**options.columns(given)}
        if await self._context.id_cache.is_run_queue(scope, queue):
            raise WrongState(RUN_QUEUE, queue=queue)
        if changes.get("encrypted") and not self._context.cipher.can_encrypt:
            raise WrongState(
                "encryptionEnabled needs a key, and this broker has none; set PENSTOCK_ENCRYPTION_KEYS",
                field="options.encryptionEnabled",
            )
        if namespace is not None:
            changes["namespace"] = namespace
        if task is not None:
            changes["task"] = task
        configured = await options.configure(self._context.database, scope, queue, changes)
        self._changed(scope, configured.queue_id, queue)
        return configured

    async def delete(self, scope: Scope, queue: str) -> bool:
        """Delete a queue with all it has; whether there was one. Pops that wait for it look again."""
        found = await catalog.find_queue(self._context.database, scope, queue)
        if found is None:
            return False
        members = [row["name"] for row in await consumer_groups.groups_of(self._context.database, found.id)]
        existed = await catalog.delete_queue(self._context.database, found.id)
        self._changed(scope, found.id, queue)
        self._context.metrics.gone(scope, found.id, queue, ["", *members])
        return existed

    def _changed(self, scope: Scope, queue_id: int, queue: str) -> None:
        self._context.id_cache.invalidate_queue(scope, queue)
        self._news.tell_changed(queue_id)
        self._context.wakeups.notify(queue_id, EVERYONE)
