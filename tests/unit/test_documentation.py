"""The documentation tells of everything there is."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from penstock.api.app import create_app
from penstock.config import Settings

ROOT = Path(__file__).parents[2]
PAGES = runpy.run_path(str(ROOT / "tools" / "reference.py"))["PAGES"]


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_what_the_code_says(name: str) -> None:
    written = (ROOT / "docs" / "reference" / name).read_text()
    assert written == PAGES[name](), "run `make reference`"


def test_every_route_is_in_the_api_reference() -> None:
    text = (ROOT / "docs" / "reference" / "api.md").read_text()
    paths = create_app(Settings()).openapi()["paths"]
    missing = [path for path in paths if path not in text]
    assert missing == []


def test_every_make_target_says_what_it_does() -> None:
    lines = (ROOT / "Makefile").read_text().splitlines()
    targets = [line for line in lines if line.partition(":")[0].isidentifier() or line.startswith("bench-")]
    silent = [
        t for t in targets if "##" not in t and not t.startswith("setup") and ":=" not in t and "?=" not in t
    ]
    assert silent == []
