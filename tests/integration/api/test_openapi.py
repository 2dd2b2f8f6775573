"""Generated requests get what the OpenAPI document declares, over a socket."""

from __future__ import annotations

import asyncio
from typing import Any

import hypothesis
import schemathesis
from hypothesis import HealthCheck
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from penstock.api.app import create_app
from penstock.config import Settings
from tests.integration.api.http.raw_connections import run_server

EXAMPLES = 8
Case = schemathesis.Case[Any]
MAX_WAIT_MS = 1
"""Pops and dequeues do not wait longer, whatever they ask for."""
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
"""A 500 contradicts the document too, since no operation declares it."""


def matches_its_route(case: Case) -> bool:
    """Whether its URL leads to the operation: clients drop dot segments, and routes match no line break."""
    values = [str(value) for value in (case.path_parameters or {}).values()]
    return not any(value in (".", "..") or not value.isprintable() for value in values)


def shorten_wait(case: Case) -> None:
    query: dict[str, Any] = case.query or {}
    if "timeout" in query or query.get("wait"):
        query["timeout"] = MAX_WAIT_MS
    if isinstance(case.body, dict) and "waitMs" in case.body:
        case.body["waitMs"] = MAX_WAIT_MS


def find_violations(document: dict[str, Any], base_url: str) -> list[str]:
    """Send generated requests to every operation; return what contradicts the document."""
    violations: list[str] = []
    for result in schemathesis.openapi.from_dict(document).get_all_operations():
        assert isinstance(result, Ok), result
        operation = result.ok()

        @hypothesis.settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @hypothesis.given(case=operation.as_strategy())
        def check(case: Case) -> None:
            hypothesis.assume(matches_its_route(case))
            shorten_wait(case)
            case.call_and_validate(base_url=base_url, checks=CHECKS)

        try:
            check()
        except FailureGroup as group:
            violations += [f"{operation.label}: {failure}" for failure in group.exceptions]
    return violations


async def test_generated_requests_get_declared_responses(settings: Settings) -> None:
    document = create_app(settings).openapi()
    async with run_server(settings) as server:
        violations = await asyncio.to_thread(find_violations, document, f"http://localhost:{server.port}")
    assert not violations, "\n\n".join(violations)
