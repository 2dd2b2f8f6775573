"""Every error a user can meet, as one tree.

Each class fixes a `code` (stable, for programs), a `status` (HTTP) and a `title`; each instance adds a
`detail` that says what to do next, and typed `fields` for the response body.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar


class PenstockError(Exception):
    """Base of all errors Penstock raises on purpose."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Something went wrong"
    exit_code: ClassVar[int] = 2
    """What a command that fails with it ends with."""

    retry_after_s: float = 1.0
    """When to ask again, where that may help."""

    def __init__(self, detail: str, **fields: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.fields = fields


class ConfigError(PenstockError):
    code = "config"
    title = "The configuration cannot be used"


class InvalidRequest(PenstockError):
    code = "invalid_request"
    status = 422
    title = "The request is not valid"


class MalformedBody(PenstockError):
    code = "malformed_body"
    status = 400
    title = "The body cannot be read"


class Unauthorized(PenstockError):
    """A token is needed and none was sent; `challenge` names the way to send it."""

    code = "unauthorized"
    status = 401
    title = "A token is needed"


class Forbidden(PenstockError):
    code = "forbidden"
    status = 403
    title = "This is not allowed"


class UnknownQueue(PenstockError):
    code = "unknown_queue"
    status = 404
    title = "There is no such queue"


class UnknownEnvironment(PenstockError):
    code = "unknown_environment"
    status = 404
    title = "There is no such environment"


class UnknownGroup(PenstockError):
    code = "unknown_group"
    status = 404
    title = "There is no such consumer group"


class UnknownPartition(PenstockError):
    code = "unknown_partition"
    status = 404
    title = "There is no such partition"


class UnknownMessage(PenstockError):
    code = "unknown_message"
    status = 404
    title = "There is no such message"


class UnknownTask(PenstockError):
    code = "unknown_task"
    status = 404
    title = "There is no such task"


class WrongState(PenstockError):
    """What was asked for makes no sense for what the message or the broker is now."""

    code = "wrong_state"
    status = 409
    title = "This cannot be done now"


class LeaseLost(PenstockError):
    code = "lease_lost"
    status = 409
    title = "The lease is no longer held"


class QueueFull(PenstockError):
    code = "queue_full"
    status = 429
    title = "The queue takes no more"


class PayloadTooLarge(PenstockError):
    code = "payload_too_large"
    status = 413
    title = "The request is too large"


class DatabaseUnavailable(PenstockError):
    code = "database_unavailable"
    status = 503
    title = "PostgreSQL cannot be reached"


class JournalFull(PenstockError):
    """PostgreSQL is away and the local journal has no room for more."""

    code = "journal_full"
    status = 503
    title = "The journal is full"


class JournalFailed(PenstockError):
    """The local journal cannot be written or read; the detail says why."""

    code = "journal_failed"
    status = 503
    title = "The journal cannot be used"


class RedisUnavailable(PenstockError):
    code = "redis_unavailable"
    status = 503
    title = "Redis cannot be reached"


class OutcomeUnknown(DatabaseUnavailable):
    """PostgreSQL went away while it worked: what it was asked to do may have been done or not."""

    code = "outcome_unknown"
    title = "PostgreSQL went away meanwhile"


class Overloaded(PenstockError):
    """The broker can neither execute nor defer a request. Nothing changed; retry after `retry_after_s`."""

    code = "overloaded"
    status = 429
    title = "Overloaded"

    def __init__(self, retry_after_s: float = 1.0) -> None:
        super().__init__(f"Broker overloaded: retry after {math.ceil(retry_after_s)} s.")
        self.retry_after_s = retry_after_s


class UnknownOperation(PenstockError):
    code = "unknown_operation"
    status = 404
    title = "There is no such operation"


class WarehouseUnavailable(PenstockError):
    code = "warehouse_unavailable"
    status = 503
    title = "ClickHouse cannot be reached"


class PartFailed(PenstockError):
    """An embedded part could not be started; the detail says why in words."""

    code = "part_failed"
    title = "A part of the platform cannot start"


class MigrationError(PenstockError):
    code = "migration"
    title = "The schema cannot be brought up to date"
