"""The documentation covers all settings, metrics, routes and make targets, and its links work."""

from __future__ import annotations

import re
import runpy
from functools import cache
from pathlib import Path

import pytest

from penstock.api.app import create_app
from penstock.config import Settings

ROOT = Path(__file__).parents[2]
PAGES = runpy.run_path(str(ROOT / "tools" / "reference.py"))["PAGES"]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
FENCED_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK_TEXT = re.compile(r"\[([^\]]*)\]\([^)]*\)")
MARKDOWN = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    committed = (ROOT / "docs" / name).read_text()
    assert committed == PAGES[name](), "run `make reference`"


def test_every_route_is_in_the_api_reference() -> None:
    text = (ROOT / "docs" / "reference" / "api.md").read_text()
    paths = create_app(Settings()).openapi()["paths"]
    missing = [path for path in paths if path not in text]
    assert missing == []


def test_the_schema_of_queue_and_group_names_excludes_slashes() -> None:
    document = create_app(Settings()).openapi()
    parameters = [
        parameter
        for operations in document["paths"].values()
        for operation in operations.values()
        for parameter in operation.get("parameters", ())
        if parameter["name"] in ("queue", "consumerGroup")
    ]
    assert len(parameters) > 40
    assert [p for p in parameters if "^[^/]+$" not in str(p["schema"])] == []
    push_item = document["components"]["schemas"]["PushItem"]
    assert push_item["properties"]["queue"]["pattern"] == "^[^/]+$"


def test_every_page_is_in_the_navigation_of_the_guide() -> None:
    docs = ROOT / "docs"
    linked: set[Path] = set()
    for page in ("index.md", "decisions/README.md"):
        targets = re.findall(r"\]\(([\w/-]+\.md)\)", (docs / page).read_text())
        linked.update((docs / page).parent / target for target in targets)
    assert {str(page) for page in docs.rglob("*.md")} - {str(page) for page in linked} == {
        str(docs / "index.md")
    }


@cache
def heading_anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts and the guide make them."""
    headings = HEADING.findall(FENCED_BLOCK.sub("", page.read_text()))
    texts = (LINK_TEXT.sub(r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in texts}


def test_every_link_leads_somewhere() -> None:
    links = [
        (page, target)
        for page in MARKDOWN
        for target in LINK.findall(FENCED_BLOCK.sub("", page.read_text()))
        if "://" not in target and not target.startswith("mailto:")
    ]
    assert [f"{page.relative_to(ROOT)}: {target}" for page, target in links if is_broken(page, target)] == []


def is_broken(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    return not file.exists() or bool(anchor and file.suffix == ".md" and anchor not in heading_anchors(file))


def test_every_make_target_has_a_description() -> None:
    lines = (ROOT / "Makefile").read_text().splitlines()
    targets = [line for line in lines if line.partition(":")[0].isidentifier() or line.startswith("bench-")]
    undocumented = [
        target
        for target in targets
        if "##" not in target and not target.startswith("setup") and ":=" not in target and "?=" not in target
    ]
    assert undocumented == []
