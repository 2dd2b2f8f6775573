"""Pin the dependencies that pyproject.toml names in the requirements files. `make pin` runs it.

Pinned versions stay unless `--upgrade` is passed. The files hold versions only, no addresses.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")

FILES = {
    "requirements.txt": ("# What the platform runs on, every version pinned by `make pin`.", ["build"]),
    "requirements-docs.txt": ("# What builds the guide that the broker serves.", ["build", "docs"]),
    "requirements-dev.txt": ("# What tests, checks and benchmarks need on top.", ["build", "docs", "dev"]),
    "requirements-bench.txt": (
        "# The peers that the benchmarks compare Penstock with.",
        ["build", "docs", "dev", "bench"],
    ),
}


def compile_pins(groups: list[str], current: set[str], options: list[str]) -> list[str]:
    """Return one `name==version` line per package of all extras and of these dependency groups."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "pins.txt"
        output.write_text("\n".join(sorted(current)))
        command = [str(UV), "pip", "compile", "pyproject.toml", "--all-extras", "--universal", "--quiet"]
        command += ["--no-header", "--no-annotate", "--no-emit-index-url", "--output-file", str(output)]
        command += [f"--group={group}" for group in groups]
        subprocess.run([*command, *options], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        return output.read_text().splitlines()


def pins_of(name: str) -> set[str]:
    lines = (ROOT / name).read_text().splitlines()
    return {line for line in lines if line and not line.startswith(("#", "-r"))}


def main() -> None:
    current = set[str]().union(*map(pins_of, FILES))
    inherited: set[str] = set()
    parent = ""
    for name, (comment, groups) in FILES.items():
        pins = compile_pins(groups, current, sys.argv[1:])
        own = [pin for pin in pins if pin not in inherited]
        (ROOT / name).write_text("\n".join([comment, *([f"-r {parent}"] if parent else []), *own, ""]))
        inherited.update(pins)
        parent = name


if __name__ == "__main__":
    main()
