"""The SQL files hold one function each, and the database has no other functions."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import asyncpg
import pytest

from penstock.durable.pool import SCHEMA, Database

FUNCTIONS = Path(str(files("penstock.durable"))) / "sql" / "functions"
FILES = sorted(FUNCTIONS.rglob("*.sql"))
CREATE = re.compile(r"^CREATE OR REPLACE FUNCTION (\w+)", re.MULTILINE)
VERSION = re.compile(r"_v\d+$")
MIGRATED = {"error_pattern_v1", "refuse_audit_change_v1"}
"""Functions that a migration owns: stored keys or a trigger depend on them, so a change needs a migration."""


def function_names(path: Path) -> list[str]:
    return CREATE.findall(path.read_text())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_holds_one_function_and_has_its_name(path: Path) -> None:
    [name] = function_names(path)
    assert path.stem == VERSION.sub("", name)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_starts_with_the_name_and_purpose_of_its_function(path: Path) -> None:
    [name] = function_names(path)
    assert path.read_text().startswith(f"-- {name}: ")


def test_no_two_files_have_the_same_name() -> None:
    names = [path.stem for path in FILES]
    assert len(set(names)) == len(names)


async def test_the_database_has_exactly_the_functions_of_the_files(database: Database) -> None:
    rows = await database.fetch(
        "SELECT proname::text AS name FROM pg_proc WHERE pronamespace = 'penstock'::regnamespace"
    )
    assert {row["name"] for row in rows} == {
        name for path in FILES for name in function_names(path)
    } | MIGRATED


async def test_functions_call_only_what_exists(database_url: str) -> None:
    """Bodies are not checked while they are created in any order, so a wrong call would fail when it runs."""
    connection = await asyncpg.connect(database_url, server_settings={"search_path": SCHEMA})
    problems = []
    for path in FILES:
        try:
            await connection.execute(path.read_text())
        except asyncpg.PostgresError as error:
            problems.append(f"{path.name}: {error}")
    await connection.close()
    assert problems == []
