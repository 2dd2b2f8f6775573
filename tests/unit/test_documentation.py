"""The documentation covers all settings, metrics, routes and make targets."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from penstock.api.app import create_app
from penstock.config import Settings

ROOT = Path(__file__).parents[2]
PAGES = runpy.run_path(str(ROOT / "tools" / "reference.py"))["PAGES"]


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_up_to_date(name: str) -> None:
    committed = (ROOT / "docs" / "reference" / name).read_text()
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


def test_every_make_target_has_a_description() -> None:
    lines = (ROOT / "Makefile").read_text().splitlines()
    targets = [line for line in lines if line.partition(":")[0].isidentifier() or line.startswith("bench-")]
    undocumented = [
        target
        for target in targets
        if "##" not in target and not target.startswith("setup") and ":=" not in target and "?=" not in target
    ]
    assert undocumented == []
