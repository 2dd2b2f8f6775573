"""A quick soak samples every part of a platform under load and writes its results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deadlines import deadline_s

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="a soak reads /proc")
def test_a_quick_soak_samples_every_part_under_load(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "soak", "--quick", "--json", "--results", str(tmp_path)]
    completed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=deadline_s(150)
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr

    report = json.loads(completed.stdout)
    assert report["problems"] == []
    assert report["capacity_per_s"]["messages"] > 0
    assert report["load"]["push requests"] > 0
    assert report["load"]["enqueue requests"] > 0
    medians = {name: figures["median"] for name, figures in report["series"].items()}
    areas = {"memory", "files", "connections", "threads", "table", "index", "dead tuples", "backlog"}
    assert areas | {"redis", "stream", "disk", "clickhouse", "restarts"} == set(report["verdicts"])
    assert all(value > 0 for name, value in medians.items() if name.startswith(("memory.", "files.")))
    assert all(medians[name] > 0 for name in ("table.log", "index.positions", "redis.MB", "clickhouse.parts"))
    assert json.loads((tmp_path / "soak.json").read_text())["samples"]
    assert (tmp_path / "soak.png").read_bytes().startswith(b"\x89PNG")
