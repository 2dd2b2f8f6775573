"""Commands that find the running platform through its home, in a shell that knows nothing but the home."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from tests.whole_platform import RunningPlatform


def run_json(platform: RunningPlatform, *arguments: str) -> Any:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    output = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", *arguments, "--json"],
        env={**environment, "PENSTOCK_HOME": str(platform.home)},
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    return json.loads(output)


def test_commands_find_the_platform_on_any_port(platform: RunningPlatform, queue: str) -> None:
    platform.push(queue, {"number": 1})
    [row] = run_json(platform, "queues", "ls", "--search", queue)["queues"]
    assert (row["name"], row["depth"]) == (queue, 1)
    assert run_json(platform, "dlq", "ls", "--queue", queue) == []


def test_config_shows_the_settings_of_the_platform(platform: RunningPlatform) -> None:
    settings = run_json(platform, "config")
    assert (settings["port"]["value"], settings["port"]["from"]) == (platform.port, "running platform")
    assert settings["postgres_url"]["value"].startswith("postgresql://")
    assert settings["encryption_keys"]["value"].endswith(":***")
