"""Everything that can go wrong, as one tree.

Each error has the `code`, `status`, `title` and `detail` of the broker's problem details, and whatever else
the broker told in `fields`. `uncertain` says whether what was asked for may have been done all the same: an
answer was lost on the way, or the broker did not hear from its database whether it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

if TYPE_CHECKING:
    from penstock.client.messages import Message, NewMessage, TransactionStep

STANDARD = ("type", "title", "status", "detail", "code", "error")


class ClientError(Exception):
    """Base of everything the client raises on purpose."""

    code: str = "client"
    status: int = 0
    """The HTTP status; 0 if there was no answer to have one."""
    title: str = "The request did not succeed"

    def __init__(self, detail: str, *, uncertain: bool = False, **fields: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.uncertain = uncertain
        self.fields = fields


class NoAnswer(ClientError):
    """No broker could be reached, or the answer did not arrive."""

    code = "no_answer"
    title = "The broker does not answer"


class ApiError(ClientError):
    """The broker said no; its subclasses say how."""

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
        **fields: Any,
    ) -> None:
        super().__init__(detail, uncertain=uncertain, **fields)
        self.status = status
        self.code = code
        self.title = title
        self.retry_after_s = retry_after_s


class InvalidRequest(ApiError):
    """The request does not fit: 400, 413 or 422. Repeating it is of no use."""


class NotFound(ApiError):
    """There is no such queue, partition, group or message: 404."""


class LeaseLost(ApiError):
    """The lease ran out, was settled or was ended by somebody: 409 `lease_lost`. Nothing was changed.

    When `uncertain`, the request had been sent before and its answer was lost: it may be that very request
    which settled the message.
    """


class WrongState(ApiError):
    """It makes no sense for what the message or the queue is now: 409."""


class TransactionFailed(ApiError):
    """A transaction was not carried out; nothing of it was. `step` is the call that failed, counted from 0.

    When `uncertain`, the transaction had been sent before and its answer was lost: that time it may have been
    carried out as a whole.
    """

    step: int
    kind: str
    """What the step was: push or ack."""
    reason: str
    results: Sequence[TransactionStep]


class Overloaded(ApiError):
    """The broker or the queue takes no more for now: 429."""


class Unavailable(ApiError):
    """The broker cannot do its work for now, as its database is away: 502, 503 or 504."""


class ServerFault(ApiError):
    """The broker failed, or does not offer this: any other 5xx."""


class OperationFailed(ClientError):
    """What was accepted could not be carried out. It is kept for somebody to retry or delete: do not send it
    again while it is, or it may be done twice."""

    code = "operation_failed"
    title = "The operation could not be carried out"

    def __init__(self, operation_id: str, reason: str) -> None:
        super().__init__(f"operation {operation_id} could not be carried out: {reason}")
        self.operation_id = operation_id
        self.reason = reason


class OperationPending(ClientError):
    """An operation did not finish in the time that was given. It is accepted: do not send it again."""

    code = "operation_pending"
    title = "The operation is not finished yet"

    def __init__(self, operation_id: str) -> None:
        super().__init__(f"operation {operation_id} is not finished yet; it is accepted and will be")
        self.operation_id = operation_id


class FlushFailed(ClientError):
    """Buffered messages that could not be pushed. `unsent` has all of them, in order, to be pushed again.

    Each has the transaction id it was sent with, so repeating the push doubles nothing.
    """

    code = "flush_failed"
    title = "Buffered messages could not be pushed"

    def __init__(self, unsent: Sequence[NewMessage], reason: str, *, uncertain: bool = False) -> None:
        count = f"{len(unsent)} buffered message{'' if len(unsent) == 1 else 's'}"
        super().__init__(f"{count} could not be pushed: {reason}", uncertain=uncertain)
        self.unsent = list(unsent)
        self.reason = reason


class PartlyFailed(Exception):
    """Raised by a handler of batches: these messages failed, all others of the batch are completed."""

    def __init__(self, failures: Iterable[tuple[Message, BaseException | str]]) -> None:
        self.failures = [(message, text_of(error)) for message, error in failures]
        super().__init__(f"{len(self.failures)} of the batch failed")


class Problem:
    """An unsuccessful answer as the error to raise."""

    BY_CODE: ClassVar[Mapping[str, type[ApiError]]] = {"lease_lost": LeaseLost}
    BY_STATUS: ClassVar[Mapping[int, type[ApiError]]] = {
        404: NotFound,
        409: WrongState,
        429: Overloaded,
        502: Unavailable,
        503: Unavailable,
        504: Unavailable,
    }

    @classmethod
    def of(cls, status: int, body: bytes, retry_after: bytes | None) -> ApiError:
        """The error for a status and body; a body that is no problem details is told as it is."""
        try:
            told = msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.DecodeError:
            told = {"detail": body[:200].decode(errors="replace").strip()}
        detail = told.get("detail") or told.get("error") or f"the answer was {status}"
        code = str(told.get("code") or "http_error")
        otherwise = ServerFault if status >= 500 else InvalidRequest
        kind = cls.BY_CODE.get(code) or cls.BY_STATUS.get(status, otherwise)
        error = kind(
            str(detail),
            status=status,
            code=code,
            title=str(told.get("title") or "The request cannot be answered"),
            retry_after_s=_seconds(retry_after),
        )
        error.fields = {name: value for name, value in told.items() if name not in STANDARD}
        return error


def _seconds(retry_after: bytes | None) -> float | None:
    """The header in seconds. Its other form, a date, is not used by the broker and counts as not given."""
    if retry_after is None or not retry_after.strip().isdigit():
        return None
    return float(retry_after)


def text_of(error: BaseException | str) -> str:
    """The words that are kept with a failed message."""
    if isinstance(error, str):
        return error
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
