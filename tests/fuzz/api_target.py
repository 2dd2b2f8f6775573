"""Histories of generated requests to all routes: a response leads to the next request."""

from __future__ import annotations

from typing import Any

import hypothesis
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis.stateful import run_state_machine_as_test

from tests.integration.api.test_openapi import CHECKS, Case, matches_its_route, shorten_wait

STEPS = 6


class ApiTarget:
    """Sends histories with one token, or without; every response is one that the OpenAPI document declares.

    No route declares a 500, so each internal error is a failure.
    """

    examples = 10
    """Histories in the suite, and in one round of a long run."""

    def __init__(self, name: str, document: dict[str, Any], base_url: str, token: str | None) -> None:
        self.name = name
        self._schema = schemathesis.openapi.from_dict(document)
        self._base_url = base_url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def run(self, seed: int | None = None) -> int:
        """Send generated histories; return the number of requests."""
        base_url, headers, sent = self._base_url, self._headers, 0

        class Machine(self._schema.as_state_machine()):  # type: ignore[misc]
            def before_call(self, case: Case) -> None:
                nonlocal sent
                hypothesis.assume(matches_its_route(case))
                shorten_wait(case)
                sent += 1

            def get_call_kwargs(self, case: Case) -> dict[str, Any]:
                return {"base_url": base_url, "headers": headers, "timeout": 60}

            def validate_response(self, response: Any, case: Case, **_: Any) -> None:
                case.validate_response(response, checks=CHECKS)

        machine: Any = Machine if seed is None else hypothesis.seed(seed)(Machine)
        run_state_machine_as_test(
            machine,
            settings=hypothesis.settings(
                max_examples=self.examples,
                stateful_step_count=STEPS,
                deadline=None,
                derandomize=seed is None,
                database=None,
                phases=[Phase.generate, Phase.shrink],
                suppress_health_check=list(HealthCheck),
            ),
        )
        return sent
