"""Exit codes of the commands. The page docs/reference/cli.md has the same table."""

from __future__ import annotations

from enum import IntEnum

from penstock.errors import ComponentFailed, PenstockError, UnknownEnvironment, UnknownQueue, WrongState


class ExitCode(IntEnum):
    """What the end of a command means for a script."""

    SUCCESS = 0
    NEGATIVE = 1
    INVALID = 2
    UNREACHABLE = 3
    DENIED = 4
    NOT_FOUND = 5
    CONFLICT = 6
    RETRY = 7
    WARNINGS = 8


MEANINGS = {
    ExitCode.SUCCESS: "The command did what it says.",
    ExitCode.NEGATIVE: "The command ran and the result is negative: a component is down, a check found a "
    "problem, there was no message, an item failed, files differ, or you declined a confirmation.",
    ExitCode.INVALID: "An argument, an option, a setting or a server is not usable. Nothing changed.",
    ExitCode.UNREACHABLE: "No broker answers at the address.",
    ExitCode.DENIED: "The token is missing, unknown, or does not allow this (HTTP 401 and 403).",
    ExitCode.NOT_FOUND: "The queue, message, group, token or other object does not exist (HTTP 404).",
    ExitCode.CONFLICT: "The current state does not allow it, or the lease is lost (HTTP 409).",
    ExitCode.RETRY: "The broker is overloaded, a quota is used up or a server of the broker does not respond "
    "(HTTP 429 and 503): try again later.",
    ExitCode.WARNINGS: "`penstock doctor` has warnings and no problem.",
}

_CODE_OF_STATUS = {
    401: ExitCode.DENIED,
    403: ExitCode.DENIED,
    404: ExitCode.NOT_FOUND,
    409: ExitCode.CONFLICT,
    429: ExitCode.RETRY,
    503: ExitCode.RETRY,
}


class BrokerUnreachable(ComponentFailed):
    """No broker answers, or it stopped within a response."""

    code = "broker_unreachable"
    title = "Broker unreachable"
    exit_code = ExitCode.UNREACHABLE


class BrokerRefusal(PenstockError):
    """The broker answered with a problem; `http_status` is the status of its response."""

    code = "broker_refusal"
    title = "Refused by the broker"

    def __init__(self, detail: str, http_status: int) -> None:
        super().__init__(detail)
        self.http_status = http_status


def exit_code_of(error: PenstockError) -> int:
    """Return the exit code of a command that ends with this error."""
    if isinstance(error, BrokerRefusal):
        return _CODE_OF_STATUS.get(error.http_status, ExitCode.INVALID)
    if isinstance(error, (UnknownQueue, UnknownEnvironment)):
        return ExitCode.NOT_FOUND
    if isinstance(error, WrongState):
        return ExitCode.CONFLICT
    return error.exit_code
