"""Say the broker's problems in the words of the command line: options and commands, no fields and routes."""

from __future__ import annotations

import re
from collections.abc import Mapping

OPTION_OF_FIELD = {
    "queue": "--queue",
    "consumerGroup": "--group",
    "partition": "--partition",
    "from": "--from",
    "to": "--to",
    "error": "--error",
    "errorGroup": "--error-group",
    "payload": "--payload",
    "search": "--search",
    "limit": "--limit",
    "hours": "--hours",
    "ratePerSecond": "--rate",
    "concurrency": "the limit",
    "scopes": "--scopes",
    "queues": "--queues",
    "groups": "--groups",
    "overlapS": "--overlap",
    "expiresAt": "--expires",
    "expiresInS": "--expires",
    "letterIds": "the ids",
    "letter_id": "the id of the dead letter",
    "job_id": "the id of the job",
}
"""What a user of the command line writes for each field of the broker's routes that a command sends."""

_HINT_OF_FIELD = {
    "letter_id": "`penstock dlq ls` shows the ids.",
    "letterIds": "`penstock dlq ls` shows the ids.",
    "job_id": "`penstock dlq jobs` shows the ids.",
    "errorGroup": "`penstock dlq groups` shows the error groups.",
}
_HINT_OF_CODE = {
    "unknown_job": "`penstock dlq jobs` lists the jobs of the last 31 days.",
    "unknown_message": "`penstock dlq ls` lists the dead letters.",
    "unknown_task": "`penstock dlq ls` lists the dead letters.",
    "unknown_token": "`penstock tokens ls` lists the tokens.",
    "unknown_audit_entry": "`penstock audit ls` lists the entries.",
    "unauthorized": "Set PENSTOCK_TOKEN to the secret of a token. The first one is created with "
    "`penstock tokens create --admin` on the broker's machine.",
}
_REQUEST_ADVICE = re.compile(
    r"(?<=[.!?])\s+[^.]*(?:\bGET |\bPOST |\bPUT |/api/v1/|/docs|Authorization: )\S*[^.]*\.?"
)
"""A sentence that tells the reader to send a request."""


def describe_problem(body: Mapping[str, object], url: str, status: int) -> str:
    """Return the text of a problem (RFC 9457) for a user of the command line."""
    code, field = str(body.get("code")), str(body.get("field"))
    if code == "unknown_queue" and isinstance(body.get("queue"), str):
        return _describe_unknown_queue(str(body["queue"]), body.get("kind"), body.get("didYouMean"))
    detail = str(body.get("detail") or f"The broker at {url} returned HTTP {status}.")
    detail = _REQUEST_ADVICE.sub("", detail)
    if field in OPTION_OF_FIELD:
        option = OPTION_OF_FIELD[field]
        detail = re.sub(rf"(?<![\w'-])`?{re.escape(field)}\b`?", option, detail, count=1)
    hint = _HINT_OF_FIELD.get(field) or _HINT_OF_CODE.get(code)
    sentence = detail[:1].upper() + detail[1:]
    return f"{sentence.rstrip('.')}. {hint}" if hint else sentence


def _describe_unknown_queue(queue: str, kind: object, similar: object) -> str:
    if kind is not None:
        other_kind = "run" if kind == "durable" else "durable"
        return f"{queue!r} is a {kind} queue. There is no {other_kind} queue of this name."
    hint = f"Did you mean {similar!r}?" if similar else "`penstock queues ls` lists the queues."
    return f"Unknown queue {queue!r}. {hint}"
