"""Create run queues within the quota of queues."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.api.services import Services
from penstock.caller import Caller


@asynccontextmanager
async def run_queue_within_quotas(services: Services, caller: Caller, queue: str) -> AsyncIterator[None]:
    """Use a run queue, and create it if it is missing, in the block.

    Raises QuotaExceeded before the block if it would be one queue too many. This process creates one run
    queue of a limited environment at a time, so that the count is right.
    """
    quotas, environment = caller.quotas, caller.environment
    if quotas is None or not quotas.limits_queues:
        yield
        return
    if await services.queue_names.is_run_queue(environment, queue):  # from a cache, in most cases
        yield
        return
    async with services.quotas.creation_lock(environment):
        if not await services.run_queues.has_queue(environment, queue):
            quotas.check_run_queue((await services.run_queues.get_environment(environment)).queues)
        try:
            yield
        finally:
            services.queue_names.invalidate_run_queue(environment, queue)
