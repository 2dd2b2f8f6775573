"""The package tree: names are unique, files are small, SQL is in SQL files, and no code stands twice."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "penstock"
CLIENT = SOURCE / "client"
MAX_LINES = 500

SQL_STATEMENT = re.compile(r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM)\b")
SQL_LOGIC = re.compile(r"\b(WHERE|JOIN|GROUP BY|INSERT|UPDATE|DELETE|WITH)\b")
SESSION_MODULES = {"migrations.py"}
"""Modules whose SQL cannot be a function: it creates the schema that holds the functions."""

BLOCK_LINES = 6
SQL_FUNCTIONS = SOURCE / "durable" / "sql" / "functions"
VENDOR = SOURCE / "console" / "static" / "vendor"
GUIDE = SOURCE / "console" / "guide"
BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
LINE_COMMENTS = {".py": "#", ".sql": "--", ".lua": "--", ".js": "//", ".css": "/*"}


class CodeLine(NamedTuple):
    """A line of a file that holds code, without its indentation."""

    number: int
    text: str


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


def test_no_block_of_six_lines_stands_twice() -> None:
    lines_by_file = {
        str(path.relative_to(SOURCE)): code_lines(path.read_text(), path.suffix)
        for path in changeable_files()
    }
    assert repeated_blocks(lines_by_file) == []


def test_a_repeated_block_is_found_whatever_its_indentation() -> None:
    block = [f"step_{number}()" for number in range(BLOCK_LINES)]
    first = ["def first():", *(f"    {line}" for line in block)]
    second = ["import os", "for item in items:", "    if item:", *(f"        {line}" for line in block)]
    first_lines, second_lines = code_lines("\n".join(first), ".py"), code_lines("\n".join(second), ".py")
    assert repeated_blocks({"a.py": first_lines, "b.py": second_lines}) == [["a.py:2", "b.py:4"]]
    assert repeated_blocks({"a.py": first_lines[:-1], "b.py": second_lines}) == []


def test_imports_comments_docstrings_and_brackets_are_no_code() -> None:
    python = ["import a", "from b import (", "    c,", ")", "# why", '"""What."""', "", "[", "]"]
    assert code_lines("\n".join(python), ".py") == []
    assert code_lines("-- why\n\n);\n", ".sql") == []
    assert code_lines("/* why\nand how */\n// where\n});\nimport x from 'y';\n", ".js") == []


def changeable_files() -> Iterator[Path]:
    """The source files that people change: no frozen migrations, no vendored scripts, no built pages."""
    for suffix in (".py", ".lua", ".js", ".css"):
        for path in SOURCE.rglob(f"*{suffix}"):
            if not (path.is_relative_to(VENDOR) or path.is_relative_to(GUIDE)):
                yield path
    yield from SQL_FUNCTIONS.rglob("*.sql")


def code_lines(text: str, suffix: str) -> list[CodeLine]:
    """Return the lines without blank lines, comments, docstrings, imports and lone brackets."""
    if suffix in {".js", ".css"}:
        text = BLOCK_COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
    skipped = _docstring_and_import_lines(text) if suffix == ".py" else set()
    lines = [CodeLine(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1)]
    return [
        line
        for line in lines
        if line.number not in skipped
        and re.search(r"\w", line.text)
        and not line.text.startswith(LINE_COMMENTS[suffix])
        and not (suffix == ".js" and line.text.startswith("import "))
    ]


def repeated_blocks(lines_by_file: dict[str, list[CodeLine]]) -> list[list[str]]:
    """Return the places (file:line) of each block of lines that stands more than once."""
    places: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, lines in lines_by_file.items():
        last_starts: dict[tuple[str, ...], int] = {}
        for start in range(len(lines) - BLOCK_LINES + 1):
            block = tuple(line.text for line in lines[start : start + BLOCK_LINES])
            if start - last_starts.get(block, -BLOCK_LINES) >= BLOCK_LINES:  # it does not overlap itself
                last_starts[block] = start
                places[block].append(f"{name}:{lines[start].number}")
    return [block_places for block_places in places.values() if len(block_places) > 1]


def _docstring_and_import_lines(text: str) -> set[int]:
    numbers: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Import | ast.ImportFrom) or (is_docstring and isinstance(node, ast.stmt)):
            numbers.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return numbers
