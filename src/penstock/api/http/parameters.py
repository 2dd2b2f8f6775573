"""Parameters of the cold routes: typed once, checked before they reach anything."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Path, Query
from pydantic import AfterValidator

from penstock.api.http.request_parsing import check_name
from penstock.errors import InvalidRequest

LARGEST_ID = 2**63 - 1


def _a_name(what: str) -> AfterValidator:
    check: Callable[[str], str] = lambda name: check_name(what, name)  # noqa: E731 - a name for the type
    return AfterValidator(check)


def in_utc(moment: datetime) -> datetime:
    """The moment with its zone; one without a zone is in UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def moment(field: str, text: object) -> datetime:
    """A moment in ISO 8601 from a body."""
    try:
        if isinstance(text, str):
            return in_utc(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        pass  # told below
    raise InvalidRequest(f"{field} must be a time in ISO 8601, not {text!r}", field=field)


def _without_nul(text: str | None) -> str | None:
    """PostgreSQL knows no NUL in text, so nothing can have it in its name."""
    if text is not None and "\0" in text:
        raise InvalidRequest("a parameter has a NUL character in it")
    return text


_a_text = AfterValidator(_without_nul)

Queue = Annotated[str, _a_name("queue")]
Partition = Annotated[str, _a_name("partition")]
Group = Annotated[str, _a_name("consumerGroup")]
Label = Annotated[str, _a_name("name")]
TransactionId = Annotated[str, _a_name("transactionId")]
PartitionId = Annotated[int, Path(ge=1, le=LARGEST_ID, description="as push and pop tell it")]
Moment = Annotated[datetime, AfterValidator(in_utc)]

Limit = Annotated[int, Query(ge=1, le=1_000, description="how many at most")]
Offset = Annotated[int, Query(ge=0, le=10_000_000, description="how many to pass over first")]
Search = Annotated[str | None, Query(min_length=1, max_length=255, description="part of the name"), _a_text]
Text = Annotated[str | None, Query(max_length=255), _a_text]
