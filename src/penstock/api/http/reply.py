"""How a hot request is answered without a task of its own: begun here, told when its batch is done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from penstock.api.http.response import Answer
from penstock.api.services import Services


class Reply(Protocol):
    """Who is waiting for an answer: a `Receiver` of what becomes of the request in its batch.

    `finish` makes the answer of that, or something to await for it; `rescue` does so of what went wrong.
    Without `rescue`, what went wrong is the answer.
    """

    finish: Callable[[Any], Answer | Awaitable[Answer]]
    rescue: Callable[[Exception], Awaitable[Answer]] | None

    def has_left(self) -> bool:
        """Whether nobody is there any more to be answered."""

    def done(self) -> bool: ...

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, exception: Exception, /) -> None: ...


Start = Callable[[Services, bytes, Reply], Awaitable[Answer] | None]
"""Begins a request, given its body: what to await for the answer, or None if the reply will be told."""
