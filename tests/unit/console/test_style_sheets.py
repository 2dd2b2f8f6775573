"""All style sheets apply to every page: two pages must not give one class two meanings."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import penstock.console

STATIC = Path(penstock.console.__file__).parent / "static"
SHEETS = sorted(STATIC.glob("css/**/*.css"))
PAGE_SHEETS = sorted(STATIC.glob("css/pages/*.css"))


def list_selectors(sheet: Path) -> list[str]:
    text = re.sub(r"/\*.*?\*/", "", sheet.read_text(), flags=re.DOTALL)
    blocks = re.findall(r"([^{};]+)\{", text)
    return [
        selector.strip()
        for block in blocks
        if not block.strip().startswith("@")
        for selector in block.split(",")
    ]


def first_class(selector: str) -> str | None:
    match = re.match(r"\w*\.([\w-]+)", selector)
    return match[1] if match else None


def test_every_class_belongs_to_one_sheet() -> None:
    sheets_by_class: dict[str, set[str]] = defaultdict(set)
    for sheet in SHEETS:
        for name in filter(None, map(first_class, list_selectors(sheet))):
            sheets_by_class[name].add(sheet.name)
    assert {name: sheets for name, sheets in sheets_by_class.items() if len(sheets) > 1} == {}


def test_sheets_of_pages_do_not_change_elements_everywhere() -> None:
    bare = {
        (sheet.name, selector)
        for sheet in PAGE_SHEETS
        for selector in list_selectors(sheet)
        if re.match(r"[a-z]+\b(?![.#\[])", selector)
    }
    assert bare == set()


def test_the_document_links_every_sheet() -> None:
    document = (STATIC / "index.html").read_text()
    assert [
        sheet.name for sheet in SHEETS if f"css/{sheet.relative_to(STATIC / 'css')}" not in document
    ] == []
