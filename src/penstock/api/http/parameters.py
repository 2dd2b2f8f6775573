"""Annotated types of path and query parameters, validated before a route runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Path, Query
from pydantic import AfterValidator

from penstock.api.http.request_parsing import check_name
from penstock.errors import InvalidRequest

MAX_ID = 2**63 - 1
"""The largest bigint of PostgreSQL."""


def _name_validator(field: str) -> AfterValidator:
    check: Callable[[str], str] = lambda name: check_name(field, name)  # noqa: E731 - pydantic needs its type
    return AfterValidator(check)


def as_utc(time: datetime) -> datetime:
    """The time in UTC. A time without a zone is taken as UTC."""
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def parse_time(field: str, text: object) -> datetime:
    """The ISO 8601 time in a field of a body; InvalidRequest if it is not one."""
    try:
        if isinstance(text, str):
            return as_utc(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        pass  # reported below
    raise InvalidRequest(f"{field} must be a time in ISO 8601, not {text!r}.", field=field)


def _reject_nul(text: str | None) -> str | None:
    """PostgreSQL text cannot contain NUL, so no stored name has one."""
    if text is not None and "\0" in text:
        raise InvalidRequest("A parameter contains a NUL character. Remove it.")
    return text


_nul_validator = AfterValidator(_reject_nul)

Queue = Annotated[str, _name_validator("queue")]
Partition = Annotated[str, _name_validator("partition")]
Group = Annotated[str, _name_validator("consumerGroup")]
Label = Annotated[str, _name_validator("name")]
TransactionId = Annotated[str, _name_validator("transactionId")]
PartitionId = Annotated[int, Path(ge=1, le=MAX_ID, description="partition id, as push and pop return it")]
Timestamp = Annotated[datetime, AfterValidator(as_utc)]

Limit = Annotated[int, Query(ge=1, le=1_000, description="maximum number of results")]
Offset = Annotated[int, Query(ge=0, le=10_000_000, description="number of results to skip")]
Search = Annotated[
    str | None, Query(min_length=1, max_length=255, description="substring of the name"), _nul_validator
]
Text = Annotated[str | None, Query(max_length=255), _nul_validator]
