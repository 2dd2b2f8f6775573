"""Call the handlers of consumers and workers: on the event loop, or plain functions in a thread."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any


async def call_handler(
    handler: Callable[[Any], object],
    argument: object,
    threads: Executor,
    on_thread_left_running: Callable[[], None],
) -> None:
    """Call a handler and wait for its end. Raises what it raises.

    A thread cannot be cancelled: if this call is cancelled while a thread still runs the handler, the thread
    continues, and `on_thread_left_running` is called.
    """
    try:
        if is_async(handler):
            result = handler(argument)
        else:
            result = await _run_in_thread(handler, argument, threads, on_thread_left_running)
        if inspect.isawaitable(result):
            await result
    except asyncio.CancelledError:
        if is_being_cancelled():
            raise
        raise RuntimeError("The handler cancelled itself.") from None


async def _run_in_thread(
    handler: Callable[[Any], object],
    argument: object,
    threads: Executor,
    on_thread_left_running: Callable[[], None],
) -> object:
    future = threads.submit(handler, argument)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        if not future.cancel() and not future.done():
            on_thread_left_running()
        raise


def is_being_cancelled() -> bool:
    """Whether the current task is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def is_async(handler: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - an object may have an asynchronous __call__
    )
