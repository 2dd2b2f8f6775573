"""`tools/setup.sh` without a package index."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_an_unreachable_package_index_is_one_line_that_names_the_log(tmp_path: Path) -> None:
    venv = tmp_path / "virtuäl environment"
    environment = {
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
        "PYTHON": sys.executable,
        "VENV": str(venv),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": "http://127.0.0.1:1/simple",
        "PIP_RETRIES": "0",
    }
    command = [str(ROOT / "tools" / "setup.sh"), "requirements.txt"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    [line] = result.stderr.splitlines()
    assert line.startswith("Setup failed: ERROR: No matching distribution found for")
    assert f"{venv}/setup.log" in line
    assert all(line.startswith("Setup: ") for line in result.stdout.splitlines())
    assert len(result.stdout.splitlines()) == 3
