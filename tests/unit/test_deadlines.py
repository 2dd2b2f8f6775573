"""Deadlines of tests grow with the slowness of the machine, and no test has a fixed one."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deadlines import (
    GROWTH,
    MAX_SLOWNESS,
    QUIET_DELAY_S,
    QUIET_LOOP_S,
    SLOWNESS_VARIABLE,
    compare_with_idle,
    deadline_s,
    slowness,
)

TESTS = Path(__file__).parents[1]
WITHOUT_IMPORTS = {"killed_job.py"}
"""Files that run in tasks of Spark, which cannot import other test modules."""

TIMEOUT_POSITIONS = {"asyncio.timeout": 0, "asyncio.wait_for": 1, "join": 0, "wait": 0, "result": 0}
"""Calls that wait, by full or by last name, with the position of their timeout."""

TIMEOUT_KEYWORDS = {"timeout", "socket_timeout"}
CALLS_WITH_KEYWORD = {"AsyncClient", "Barrier", "Client", "from_url", "open", "run", "wait"}

SHORTEST_DEADLINE_S = 1.0
"""Shorter waits are pauses, or the subject of the test."""


def is_fixed(node: ast.expr) -> bool:
    """Return whether the expression is a number or a constant in seconds."""
    if isinstance(node, ast.Constant):
        number = node.value if isinstance(node.value, int | float) and node.value is not True else 0
        return number >= SHORTEST_DEADLINE_S
    return isinstance(node, ast.Name) and node.id.endswith("_S")


def timeouts(call: ast.Call) -> Iterator[ast.expr]:
    """Yield the arguments that say how long the call waits at most."""
    full_name = ast.unparse(call.func)
    last_name = full_name.rpartition(".")[2]
    position = TIMEOUT_POSITIONS.get(full_name, TIMEOUT_POSITIONS.get(last_name))
    if position is not None and len(call.args) > position:
        yield call.args[position]
    if last_name in CALLS_WITH_KEYWORD:
        yield from (keyword.value for keyword in call.keywords if keyword.arg in TIMEOUT_KEYWORDS)


def fixed_timeouts(source: str) -> list[int]:
    """Return the numbers of the lines with a timeout that does not grow with the slowness."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [node.lineno for call in calls for node in timeouts(call) if is_fixed(node)]


def test_no_test_has_a_fixed_deadline() -> None:
    fixed = {
        f"{path.relative_to(TESTS)}:{line}"
        for path in TESTS.rglob("*.py")
        if path.name not in WITHOUT_IMPORTS
        for line in fixed_timeouts(path.read_text())
    }
    assert fixed == set(), "use deadline_s() of tests/deadlines.py"


@pytest.mark.parametrize(
    ("source", "is_refused"),
    [
        ("asyncio.timeout(5)", True),
        ("asyncio.wait_for(task, 10.0)", True),
        ("asyncio.wait({task}, timeout=20)", True),
        ("process.wait(TIMEOUT_S)", True),
        ("subprocess.run(command, timeout=60)", True),
        ("thread.join(deadline_s(20))", False),
        ("stopped.wait(0.05)", False),
        ("', '.join(FIELDS)", False),
        ("queen.queue(name).wait(True)", False),
        ("client.operations.wait(operation_id, timeout_s=60)", False),
    ],
)
def test_a_fixed_deadline_is_recognized(source: str, is_refused: bool) -> None:
    assert bool(fixed_timeouts(source)) == is_refused


def test_a_busy_processor_makes_deadlines_longer() -> None:
    assert compare_with_idle(3 * QUIET_LOOP_S, 0.0) == pytest.approx(1 + 2 * GROWTH)
    assert compare_with_idle(QUIET_LOOP_S, 2 * QUIET_DELAY_S) == pytest.approx(1 + GROWTH)
    assert compare_with_idle(QUIET_LOOP_S, QUIET_DELAY_S) == 1
    assert compare_with_idle(0.0, 0.0) == 1, "never shorter"
    assert compare_with_idle(1000.0, 0.0) == MAX_SLOWNESS


def test_processes_of_the_run_have_the_same_slowness() -> None:
    assert 1 <= slowness() <= MAX_SLOWNESS
    assert deadline_s(20) == 20 * slowness()
    program = "from tests.deadlines import slowness; print(slowness())"
    environment = {**os.environ, SLOWNESS_VARIABLE: "7.5", "PYTHONPATH": str(TESTS.parent)}
    printed = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert float(printed.stdout) == 7.5
    assert float(os.environ[SLOWNESS_VARIABLE]) == slowness()
