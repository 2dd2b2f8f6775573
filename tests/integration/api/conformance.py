"""Compare every response that a test receives with the OpenAPI document."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import httpx

from penstock.api.app import create_app
from penstock.config import Settings

Operation = dict[str, Any]


class Conformance:
    """Collects statuses and content types that the document does not declare for their operation."""

    def __init__(self) -> None:
        self.violations: set[str] = set()

    async def check(self, response: httpx.Response) -> None:
        found = self._find_operation(response.request)
        if found is None:
            return  # no route has this path and method
        path, operation = found
        name = f"{response.request.method} {path}"
        status = str(response.status_code)
        declared = operation["responses"].get(status)
        if declared is None:
            self.violations.add(
                f"{name} answered {status}, which the OpenAPI document does not declare. Add its error class "
                "to responses=problem_responses(...) of the route."
            )
            return
        content_type = response.headers.get("content-type", "").partition(";")[0]
        content = declared.get("content", {})
        if content_type not in (content or {"": {}}):
            self.violations.add(
                f"{name} answered {status} as {content_type!r}, declared are {sorted(content)}"
            )

    def _find_operation(self, request: httpx.Request) -> tuple[str, Operation] | None:
        """Return the operation with the fewest parameters that matches the request."""
        for path, pattern, operations in _read_operations():
            if pattern.fullmatch(request.url.path) and request.method.lower() in operations:
                return path, operations[request.method.lower()]
        return None


@cache
def _read_operations() -> list[tuple[str, re.Pattern[str], dict[str, Operation]]]:
    """Read the document once: it is the same for all settings, and slow to generate."""
    paths = create_app(Settings()).openapi()["paths"]
    operations = []
    for path in sorted(paths, key=lambda path: (path.count("{"), -len(path))):
        # Names of partitions and transaction ids may contain slashes.
        pattern = re.sub(
            r"\{(partition|transaction_id)\}", "(.+)", re.sub(r"\{(?!partition|tr)\w+\}", "([^/]+)", path)
        )
        operations.append((path, re.compile(pattern), paths[path]))
    return operations
