"""What a broker process imports: modules that few requests need are loaded by those requests."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.deadlines import deadline_s

HEAVY = {
    *(
        "chdb",
        "clickhouse_connect",
        "cryptography.hazmat",
        "httpx",
        "joserfc",
        "lz4",
        "numpy",
        "pandas",
        "pyarrow",
        "pyspark",
    ),
    *("rich", "typer", "urllib3"),
    *("penstock.cli", "penstock.client", "penstock.embedded", "penstock.pipeline"),
}
"""Modules of single routes, of the command line and of other processes. They cost time and memory."""

APPLICATION = {"asyncpg", "fastapi", "penstock.api.app", "penstock.broker.broker", "redis", "starlette"}
"""Modules of the application. The process that supervises workers does without them."""


def imported_by(statement: str) -> set[str]:
    """The modules that a new Python process has loaded after this statement."""
    program = f"{statement}; import json, sys; print(json.dumps(sorted(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, timeout=deadline_s(120)
    )
    return set(json.loads(result.stdout))


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import penstock.api.app, penstock.api.http.fast_protocol", HEAVY),
        ("from penstock.api.app import create_app_from_environment as create; create()", HEAVY),
        ("import penstock.api.server", HEAVY | APPLICATION),
    ],
)
def test_a_process_does_not_import_what_it_may_never_need(statement: str, unwanted: set[str]) -> None:
    assert imported_by(statement) & unwanted == set()
