"""Tell the audit log what a route changed. The middleware records the call itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request


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
