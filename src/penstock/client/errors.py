"""The error classes of the client: one tree under ClientError.

Each error has the `code`, `status`, `title` and `detail` of the broker's problem details, and its other
fields in `fields`. `uncertain` is True if the request may have taken effect all the same: its response was
lost, or the broker lost its database during the request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from penstock.client.messages import Message, NewMessage, TransactionStep

STANDARD_FIELDS = ("type", "title", "status", "detail", "code", "error")


class ClientError(Exception):
    """Base class of every error that the client raises on purpose."""

    code: str = "client"
    status: int = 0
    """The HTTP status; 0 if there was no response."""
    title: str = "Request failed"

    def __init__(self, detail: str, *, uncertain: bool = False, **fields: object) -> None:
        super().__init__(detail)
        self.detail = detail
        self.uncertain = uncertain
        self.fields = fields


class NoAnswer(ClientError):
    """No broker was reachable, or no response arrived."""

    code = "no_answer"
    title = "No response"


class ApiError(ClientError):
    """The broker answered with an error; the subclass gives the kind."""

    retry_after_s: float | None = None

    def __init__(
        self,
        detail: str,
        *,
        status: int,
        code: str,
        title: str,
        retry_after_s: float | None = None,
        uncertain: bool = False,
        **fields: object,
    ) -> None:
        super().__init__(detail, uncertain=uncertain, **fields)
        self.status = status
        self.code = code
        self.title = title
        self.retry_after_s = retry_after_s


class InvalidRequest(ApiError):
    """The request is invalid: 400, 413 or 422. A retry cannot succeed."""


class AccessDenied(ApiError):
    """The token is missing, expired or revoked (401), or does not allow the request (403)."""


class NotFound(ApiError):
    """The queue, partition, group or message does not exist: 404."""


class LeaseLost(ApiError):
    """The lease expired, was acked completely or was ended by an operator: 409 `lease_lost`. Nothing changed.

    If `uncertain`, the request was sent before and its response was lost: that request may have acked the
    message.
    """


class WrongState(ApiError):
    """The message or queue is in a state that does not allow the request: 409."""


class TransactionFailed(ApiError):
    """A transaction failed and changed nothing. `step` is the index of the call that failed, from 0.

    If `uncertain`, the transaction was sent before and its response was lost: the first one may have
    committed.
    """

    step: int
    kind: str
    """The kind of the step: push or ack."""
    reason: str
    results: Sequence[TransactionStep]


class Overloaded(ApiError):
    """The broker is overloaded, the queue is full or a quota is used up: 429."""


class Unavailable(ApiError):
    """The broker or its database is unavailable: 502, 503 or 504."""


class ServerFault(ApiError):
    """The broker failed, or does not support the request: any other 5xx."""


class OperationFailed(ClientError):
    """A deferred operation failed. It is kept until an operator retries or deletes it.

    Sending it again before that may execute it twice.
    """

    code = "operation_failed"
    title = "Operation failed"

    def __init__(self, operation_id: str, reason: str) -> None:
        super().__init__(f"Operation {operation_id} failed: {reason}")
        self.operation_id = operation_id
        self.reason = reason


class OperationPending(ClientError):
    """An operation did not finish within the timeout. It is accepted: do not send it again."""

    code = "operation_pending"
    title = "Operation pending"

    def __init__(self, operation_id: str) -> None:
        super().__init__(f"Operation {operation_id} is still pending. It is accepted and will be executed.")
        self.operation_id = operation_id


class FlushFailed(ClientError):
    """Buffered messages could not be pushed. `unsent` holds all of them, in order, to push them again.

    Each has the transaction id it was sent with, so a repeated push creates no duplicates.
    """

    code = "flush_failed"
    title = "Flush failed"

    def __init__(self, unsent: Sequence[NewMessage], reason: str, *, uncertain: bool = False) -> None:
        count = f"{len(unsent)} buffered message{'' if len(unsent) == 1 else 's'}"
        super().__init__(f"Cannot push {count}: {reason}", uncertain=uncertain)
        self.unsent = list(unsent)
        self.reason = reason


class PartlyFailed(Exception):
    """Raised by a batch handler: these messages failed, all others of the batch are completed."""

    def __init__(self, failures: Iterable[tuple[Message, BaseException | str]]) -> None:
        self.failures = [(message, error_text(error)) for message, error in failures]
        super().__init__(f"{len(self.failures)} of the batch failed")


ERRORS_BY_CODE: Mapping[str, type[ApiError]] = {"lease_lost": LeaseLost}
ERRORS_BY_STATUS: Mapping[int, type[ApiError]] = {
    401: AccessDenied,
    403: AccessDenied,
    404: NotFound,
    409: WrongState,
    429: Overloaded,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def api_error(status: int, body: bytes, retry_after: bytes | None) -> ApiError:
    """Build the error for a status and body. A body that is no problem details becomes the detail."""
    try:
        problem = msgspec.json.decode(body, type=dict[str, object])
    except msgspec.DecodeError:
        problem = {"detail": body[:200].decode(errors="replace").strip()}
    detail = problem.get("detail") or problem.get("error") or f"The broker answered with status {status}."
    code = str(problem.get("code") or "http_error")
    default = ServerFault if status >= 500 else InvalidRequest
    error_type = ERRORS_BY_CODE.get(code) or ERRORS_BY_STATUS.get(status, default)
    error = error_type(
        str(detail),
        status=status,
        code=code,
        title=str(problem.get("title") or "Request failed"),
        retry_after_s=_exact_seconds(problem.get("retryAfter")) or _parse_seconds(retry_after),
    )
    error.fields = {name: value for name, value in problem.items() if name not in STANDARD_FIELDS}
    return error


def _exact_seconds(retry_after: object) -> float | None:
    """Return the seconds that the body names; the header rounds them up."""
    return float(retry_after) if isinstance(retry_after, int | float) else None


def _parse_seconds(retry_after: bytes | None) -> float | None:
    """Return the header in seconds. Its other form, a date, which the broker does not send, is ignored."""
    if retry_after is None or not retry_after.strip().isdigit():
        return None
    return float(retry_after)


def error_text(error: BaseException | str) -> str:
    """Return the text that the broker stores with a failed message."""
    if isinstance(error, str):
        return error
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
