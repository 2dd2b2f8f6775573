"""What consumers and workers share: when to go on, and how to stop without losing an answer."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.client.errors import ClientError, NoAnswer, Overloaded, Unavailable
from penstock.client.http.connections import Parting

ANSWERING_S = 0.2
"""How long a call may still be answered when its caller stops."""

PARTING_S = 2.0
"""How long the broker may take to notice that a waiting call is left."""


def leave(call: asyncio.Task[Any], parting: Parting) -> None:
    """Let a waiting call end soon, with messages or tasks or without.

    One that the broker is answering is let be. Only one that waits for longer is left, so that hardly
    anything can cross with the leaving; and what does is still heard of.
    """
    if parting.last:
        return
    parting.last = True
    later = asyncio.get_running_loop().call_later

    def go() -> None:
        if parting.leave():
            later(PARTING_S, call.cancel)
        else:
            call.cancel()

    if parting.connection is None:
        call.cancel()
    else:
        later(ANSWERING_S, go)


def passes(error: ClientError) -> bool:
    """Whether a consumer or worker sits it out, however long it takes."""
    return isinstance(error, NoAnswer | Overloaded | Unavailable) or error.status == 500


@contextmanager
def told_by(stop: Callable[[], None], signals: Iterable[signal.Signals]) -> Iterator[None]:
    """While this lasts, these signals stop it."""
    loop = asyncio.get_running_loop()
    taken = list(signals)
    for number in taken:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)
