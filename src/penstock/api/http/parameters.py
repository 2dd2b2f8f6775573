"""Annotated types of path and query parameters, validated before a route runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated

from fastapi import Path, Query
from pydantic import AfterValidator

from penstock.api.http.request_parsing import as_utc, check_name
from penstock.errors import InvalidRequest

MAX_ID = 2**63 - 1
"""The largest bigint of PostgreSQL."""
MAX_YEAR = 9998


def _name_validator(field: str) -> AfterValidator:
    check: Callable[[str], str] = lambda name: check_name(field, name)  # noqa: E731 - pydantic needs its type
    return AfterValidator(check)


def _check_time(time: datetime) -> datetime:
    """Return the time in UTC. The bounds leave room for arithmetic: `datetime` overflows at its ends."""
    time = as_utc(time)
    if not 1970 <= time.year <= MAX_YEAR:
        raise ValueError(f"The time is outside the years 1970 to {MAX_YEAR}")
    return time


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
Timestamp = Annotated[datetime, AfterValidator(_check_time)]

Limit = Annotated[int, Query(ge=1, le=1_000, description="maximum number of results")]
Offset = Annotated[int, Query(ge=0, le=10_000_000, description="number of results to skip")]
Search = Annotated[
    str | None, Query(min_length=1, max_length=255, description="substring of the name"), _nul_validator
]
Text = Annotated[str | None, Query(max_length=255), _nul_validator]
