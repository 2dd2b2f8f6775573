"""The error classes of Penstock: one tree under PenstockError.

Each class has a stable `code` for programs, an HTTP `status` and a `title`. Each instance adds a `detail`
that says what to do next, and `fields` for the response body.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar


class PenstockError(Exception):
    """Base class of every error that Penstock raises on purpose."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"
    exit_code: ClassVar[int] = 2
    """Exit status of a CLI command that fails with this error."""

    retry_after_s: float = 1.0
    """Seconds after which a retry may succeed; sent as Retry-After with 429 and 503."""

    def __init__(self, detail: str, **fields: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.fields = fields


class ConfigError(PenstockError):
    code = "config"
    title = "Invalid configuration"


class InvalidRequest(PenstockError):
    code = "invalid_request"
    status = 422
    title = "Invalid request"


class MalformedBody(PenstockError):
    code = "malformed_body"
    status = 400
    title = "Malformed body"


class MalformedRequest(PenstockError):
    """The request is not valid HTTP/1.1, or ambiguous. The broker closes the connection."""

    code = "malformed_request"
    status = 400
    title = "Malformed request"


class RequestTimeout(PenstockError):
    """The request arrived too slowly. The broker closes the connection."""

    code = "request_timeout"
    status = 408
    title = "Request too slow"


class HeadTooLarge(PenstockError):
    """The request line and headers are too large. The broker closes the connection."""

    code = "head_too_large"
    status = 431
    title = "Request head too large"


class Unauthorized(PenstockError):
    """The request carries no token; the field `challenge` says how to send one."""

    code = "unauthorized"
    status = 401
    title = "Token required"


class Forbidden(PenstockError):
    code = "forbidden"
    status = 403
    title = "Forbidden"


class LoginFailed(PenstockError):
    """A login through the identity provider was not completed. Nothing changed."""

    code = "login_failed"
    status = 400
    title = "Login failed"


class LoginDisabled(PenstockError):
    """No identity provider is configured."""

    code = "login_disabled"
    status = 404
    title = "Login disabled"


class InvalidCsrfToken(PenstockError):
    """A request with a session cookie would change something, and lacks the session's CSRF token."""

    code = "invalid_csrf_token"
    status = 403
    title = "CSRF token required"


class TooManyLogins(PenstockError):
    """An address tried to log in too often; retry after `retry_after_s`."""

    code = "too_many_logins"
    status = 429
    title = "Too many logins"

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"Too many logins from this address: retry after {math.ceil(retry_after_s)} s.")
        self.retry_after_s = retry_after_s


class ProviderUnavailable(PenstockError):
    """The identity provider does not answer, or not as it should."""

    code = "provider_unavailable"
    status = 503
    title = "Identity provider unavailable"


class CrossOrigin(PenstockError):
    """A web page of another origin made a browser send the request."""

    code = "cross_origin"
    status = 403
    title = "Cross-origin request"


class UnknownHost(PenstockError):
    """The Host header names no host that the broker serves."""

    code = "unknown_host"
    status = 421
    title = "Unknown host"


class UnsupportedMediaType(PenstockError):
    code = "unsupported_media_type"
    status = 415
    title = "Unsupported media type"


class UnknownQueue(PenstockError):
    code = "unknown_queue"
    status = 404
    title = "Unknown queue"

    @classmethod
    def of_any_kind(cls, queue: str) -> UnknownQueue:
        """Return the error for a name that is neither a durable queue nor a run queue."""
        return cls(
            f"Queue {queue!r} does not exist. The first push or task for a queue creates it.", queue=queue
        )


class UnknownEnvironment(PenstockError):
    code = "unknown_environment"
    status = 404
    title = "Unknown environment"


class UnknownGroup(PenstockError):
    code = "unknown_group"
    status = 404
    title = "Unknown consumer group"


class UnknownPartition(PenstockError):
    code = "unknown_partition"
    status = 404
    title = "Unknown partition"


class UnknownMessage(PenstockError):
    code = "unknown_message"
    status = 404
    title = "Unknown message"


class UnknownTask(PenstockError):
    code = "unknown_task"
    status = 404
    title = "Unknown task"


class WrongState(PenstockError):
    """The message or the broker is in a state that does not allow the request."""

    code = "wrong_state"
    status = 409
    title = "Wrong state"


class LeaseLost(PenstockError):
    code = "lease_lost"
    status = 409
    title = "Lease lost"


class QueueFull(PenstockError):
    code = "queue_full"
    status = 429
    title = "Queue full"


class PayloadTooLarge(PenstockError):
    code = "payload_too_large"
    status = 413
    title = "Request too large"


class DatabaseUnavailable(PenstockError):
    code = "database_unavailable"
    status = 503
    title = "PostgreSQL unavailable"


class DatabaseFull(PenstockError):
    """PostgreSQL has no disk space or memory for a statement. Nothing changed."""

    code = "database_full"
    status = 503
    title = "PostgreSQL full"


class JournalFull(PenstockError):
    """PostgreSQL is unreachable and the local journal has no room left."""

    code = "journal_full"
    status = 503
    title = "Journal full"


class JournalFailed(PenstockError):
    """The local journal cannot be written or read; the detail gives the reason."""

    code = "journal_failed"
    status = 503
    title = "Journal failed"


class RedisUnavailable(PenstockError):
    code = "redis_unavailable"
    status = 503
    title = "Redis unavailable"


class OutcomeUnknown(DatabaseUnavailable):
    """The connection to PostgreSQL broke during a statement: it may or may not have taken effect."""

    code = "outcome_unknown"
    title = "Outcome unknown"


class Overloaded(PenstockError):
    """The broker can neither execute nor defer a request. Nothing changed; retry after `retry_after_s`.

    The field `retryAfter` has the exact seconds, which the header rounds up.
    """

    code = "overloaded"
    status = 429
    title = "Overloaded"

    def __init__(self, retry_after_s: float) -> None:
        detail = f"Broker overloaded: retry after {math.ceil(retry_after_s)} s."
        super().__init__(detail, retryAfter=retry_after_s)
        self.retry_after_s = retry_after_s


class TooManyConnections(PenstockError):
    """The broker process has `max_connections` connections. This one is closed."""

    code = "too_many_connections"
    status = 503
    title = "Too many connections"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"The broker process has {limit} connections, its maximum. Close idle ones, or raise "
            "PENSTOCK_MAX_CONNECTIONS."
        )


class TooManyWaiting(PenstockError):
    """As many pops or dequeues wait as may. Nothing changed; a request that does not wait still works."""

    code = "too_many_waiting"
    status = 429
    title = "Too many waiting requests"

    def __init__(self, kind: str, limit: int) -> None:
        super().__init__(
            f"{limit} {kind} wait at this broker process, the maximum. Retry later or without waiting, use "
            "larger batches, or raise PENSTOCK_MAX_WAITING."
        )


class QuotaExceeded(PenstockError):
    """A quota of the environment or the token is used up. Nothing changed; retry after `retry_after_s`.

    The fields `quota` and `limit` say which, and `retryAfter` has the exact seconds.
    """

    code = "quota_exceeded"
    status = 429
    title = "Quota exceeded"

    def __init__(self, detail: str, *, quota: str, limit: float, retry_after_s: float) -> None:
        super().__init__(detail, quota=quota, limit=limit, retryAfter=round(retry_after_s, 3))
        self.quota = quota
        self.retry_after_s = retry_after_s


class UnknownOperation(PenstockError):
    code = "unknown_operation"
    status = 404
    title = "Unknown operation"


class WarehouseUnavailable(PenstockError):
    code = "warehouse_unavailable"
    status = 503
    title = "ClickHouse unavailable"


class ServerUnusable(PenstockError):
    """A server that a setting names cannot be used as it is: `problem` says why, `remedy` what to do."""

    code = "server_unusable"
    status = 503
    title = "Server unusable"

    def __init__(self, setting: str, problem: str, remedy: str) -> None:
        super().__init__(f"{setting}: {problem}. {remedy}")
        self.problem = problem


class ServerUnreachable(ServerUnusable):
    """Nothing answers at the address, which may change without a change of the settings."""

    code = "server_unreachable"
    title = "Server unreachable"


class ServerStarting(ServerUnreachable):
    """The server answers that it starts, recovers, loads its data or shuts down."""

    code = "server_starting"
    title = "Server starting"


class DatabaseMissing(ServerUnusable):
    """The server works, but has no database of the name in the URL."""

    code = "database_missing"
    title = "Database missing"


class ComponentFailed(PenstockError):
    """A component of the platform did not start; the detail gives the reason."""

    code = "part_failed"
    title = "Component failed"


class MigrationError(PenstockError):
    code = "migration"
    title = "Migration failed"


class SchemaOutdated(PenstockError):
    """PostgreSQL lacks a function that this version calls."""

    code = "schema_outdated"
    status = 503
    title = "Schema outdated"


class GroupDeleted(PenstockError):
    """The consumer group of a cached id was deleted; look its name up again."""

    code = "group_gone"
    status = 404
    title = "Unknown consumer group"


class QueueDeleted(PenstockError):
    """A queue was deleted while the request added to it. Nothing changed; a retry creates the queue again."""

    code = "queue_gone"
    status = 503
    title = "Queue deleted"


class TransactionFailed(PenstockError):
    """Item `item` (from 0) of the pushes or acks of a transaction failed for `reason`. Nothing changed."""

    code = "transaction_failed"
    status = 409
    title = "Transaction failed"

    def __init__(self, kind: str, item: int, reason: str) -> None:
        super().__init__(f"{kind} {item} of the transaction failed: {reason}. Nothing was changed.")
        self.kind = kind
        """push or ack"""
        self.item = item
        self.reason = reason
