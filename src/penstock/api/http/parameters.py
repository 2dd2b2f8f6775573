"""Annotated types of path and query parameters, validated before a route runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated

from fastapi import Path, Query
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import AfterValidator, WithJsonSchema
from starlette.requests import Request

from penstock.api.http.request_parsing import as_utc, check_name
from penstock.api.schemas.message_bodies import PATH_NAME_SCHEMA
from penstock.broker.queues.queue_options import suggest_name
from penstock.errors import InvalidRequest
from penstock.validation_text import shorten

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
        raise ValueError(f"must be a time in the years 1970 to {MAX_YEAR}")
    return time


def _reject_nul(text: str | None) -> str | None:
    """PostgreSQL text cannot contain NUL, so no stored name has one."""
    if text is not None and "\0" in text:
        raise InvalidRequest("A parameter contains a NUL character. Remove it.")
    return text


_nul_validator = AfterValidator(_reject_nul)

_path_name_schema = WithJsonSchema(PATH_NAME_SCHEMA)

Queue = Annotated[str, _name_validator("queue"), _path_name_schema]
Partition = Annotated[str, _name_validator("partition")]
Group = Annotated[str, _name_validator("consumerGroup"), _path_name_schema]
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


async def refuse_unknown_parameters(request: Request) -> None:
    """Refuse a query parameter that the route does not have, as a dependency of a router.

    A mistyped parameter would otherwise be ignored and the response would look right. Routers whose routes
    published Queen clients call do not use it: these clients send parameters of their own.
    """
    if not request.query_params:
        return
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = query_names(route.dependant)
    for name in request.query_params:
        if name not in known:
            hint = suggest_name(name, known) if known else ". This route has none."
            raise InvalidRequest(f"Unknown query parameter {shorten(name)!r}{hint}", field=shorten(name))


def query_names(dependant: Dependant) -> list[str]:
    """Return the query parameters of a route and of its dependencies."""
    names = [parameter.alias for parameter in dependant.query_params]
    return names + [name for child in dependant.dependencies for name in query_names(child)]
