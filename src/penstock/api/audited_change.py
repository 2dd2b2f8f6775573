"""Tell the audit log what a route changed. The middleware records the call itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request

from penstock.errors import PenstockError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AuditedChange:
    """What a call was for, besides its parameters, and the state before and after it."""

    names: Mapping[str, object]
    before: object
    after: object


def audit_change(request: Request, *, before: object = None, after: object = None, **names: object) -> None:
    """Record the state of an object before and after this call; None: it did not exist, or does not now.

    Both are JSON: what the API shows of the object, without its payloads and secrets. `names` identify the
    object if the body of the request does. A later call for the same request replaces an earlier one.
    """
    request.state.audited_change = AuditedChange(names, before, after)


async def state_before(read: Awaitable[T], to_json: Callable[[T], object]) -> Any:
    """Return the JSON of an object that a route is about to change; None if it cannot be read.

    The change itself then reports why, so that reading the state first does not change the response.
    """
    try:
        return to_json(await read)
    except PenstockError:
        return None


def audit_subject(request: Request, subject: str) -> None:
    """Record who sent this request, if `authenticate` does not return its caller."""
    request.state.audited_subject = subject
