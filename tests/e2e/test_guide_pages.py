"""The code blocks of the guide run as printed, in their order; only ports are others."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock.embedded.servers.ports import any_free_port
from tests.page_runner import PageRunner
from tests.whole_platform import RunningPlatform

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("tutorial", "console", "from-celery", "prometheus-grafana", "upgrade", "backup")


@pytest.mark.parametrize("page", PAGES)
async def test_the_code_of_a_page_runs_as_printed(
    page: str, platform: RunningPlatform, tmp_path: Path
) -> None:
    replacements = {
        "7480": str(platform.port),
        "7481": str(postgres_port(platform)),
        "8099": str(any_free_port()),
    }
    runner = PageRunner(tmp_path, {"PENSTOCK_HOME": str(platform.home)}, replacements)
    await runner.run(DOCS / f"{page}.md")


def postgres_port(platform: RunningPlatform) -> int | None:
    components = json.loads((platform.home / "run" / "state.json").read_text())["parts"]
    [address] = [str(component["address"]) for component in components if component["name"] == "postgres"]
    return urlsplit(address).port
