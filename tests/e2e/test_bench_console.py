"""A quick run of the console's benchmark writes its results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import CHROMIUM
from tests.deadlines import deadline_s

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.browser


def test_a_quick_run_writes_sizes_times_frames_and_a_plot(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.console", "--quick", "--results", str(tmp_path)]
    assert CHROMIUM
    completed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=deadline_s(180)
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr

    written = json.loads((tmp_path / "console.json").read_text())
    assert 0 < written["ratios"]["bytes_vs_goal"] < 1
    assert written["ratios"]["charts_vs_blank"] > 0
    assert written["medians"]["scroll"].keys() == {"charts", "blank page"}
    assert "frames/s" in completed.stdout
    assert (tmp_path / "console.png").read_bytes().startswith(b"\x89PNG")
