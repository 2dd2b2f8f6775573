"""The package tree: names are unique, files are small, and SQL is in SQL files."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "penstock"
CLIENT = SOURCE / "client"
MAX_LINES = 500

SQL_STATEMENT = re.compile(r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM)\b")
SQL_LOGIC = re.compile(r"\b(WHERE|JOIN|GROUP BY|INSERT|UPDATE|DELETE|WITH)\b")
SESSION_MODULES = {"migrations.py"}
"""Modules whose SQL cannot be a function: it creates the schema that holds the functions."""


def modules() -> Iterator[Path]:
    return (path for path in SOURCE.rglob("*.py") if path.name != "__init__.py")


def server_modules() -> Iterator[Path]:
    """All modules but the client's, which mirrors some names of the server on purpose."""
    return (path for path in modules() if not path.is_relative_to(CLIENT))


def repeated(paths_by_name: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: paths for name, paths in paths_by_name.items() if len(paths) > 1}


def test_no_two_modules_have_the_same_name() -> None:
    paths_by_name: dict[str, list[str]] = defaultdict(list)
    for path in server_modules():
        paths_by_name[path.stem].append(str(path.relative_to(SOURCE)))
    assert repeated(paths_by_name) == {}


def test_no_two_public_classes_have_the_same_name() -> None:
    paths_by_name: dict[str, list[str]] = defaultdict(list)
    for path in server_modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                paths_by_name[node.name].append(str(path.relative_to(SOURCE)))
    assert repeated(paths_by_name) == {}


def test_every_module_and_package_starts_with_a_docstring() -> None:
    missing = [
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert missing == []


def test_no_module_is_too_long() -> None:
    lengths = {str(path.relative_to(SOURCE)): len(path.read_text().splitlines()) for path in modules()}
    assert {path: length for path, length in lengths.items() if length > MAX_LINES} == {}


@pytest.mark.parametrize(
    "path", sorted((SOURCE / "durable").rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE))
)
def test_python_only_calls_sql_functions(path: Path) -> None:
    if path.name in SESSION_MODULES:
        return
    statements = [
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_statement(node.value)
    ]
    assert [text for text in statements if SQL_LOGIC.search(text)] == []


def _is_statement(text: str) -> bool:
    return bool(SQL_STATEMENT.match(text.lstrip()))
