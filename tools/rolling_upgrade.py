"""Test a rolling upgrade from an earlier revision to this tree: `tools/rolling_upgrade.py v0.1.0`.

It builds the wheel of the revision, which needs the git history, and runs the test of rolling upgrades with
a broker of that wheel beside one of this tree. Run it before a release, with the tag of the previous one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEST = "tests/chaos/test_rolling_upgrade.py"


def build_wheel(revision: str, directory: Path) -> Path:
    """Build the wheel of a revision from its files alone."""
    archive = directory / "source.tar"
    command = ["git", "archive", "--format", "tar", "--output", str(archive), revision]
    subprocess.run(command, cwd=ROOT, check=True)
    source = directory / "source"
    with tarfile.open(archive) as files:
        files.extractall(source)
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(source)], check=True)
    [wheel] = directory.glob("*.whl")
    return wheel


def main() -> int:
    if len(sys.argv) != 2:
        print("Usage: tools/rolling_upgrade.py REVISION", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel(sys.argv[1], Path(folder))
        print(f"Upgrade from {sys.argv[1]} ({wheel.name}) to this tree")
        environment = {**os.environ, "PREVIOUS_WHEEL": str(wheel)}
        command = [sys.executable, "-m", "pytest", "-q", TEST]
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
