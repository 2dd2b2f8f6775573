"""The wheel: it is complete, and in an empty environment its client needs msgspec only.

Nothing is downloaded: the only dependency is copied from the environment of the tests.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.directories import temporary_directory

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("wheel_client.py")


def run(*command: object) -> str:
    """Run a program outside of the repository and return its output."""
    result = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, cwd="/", env={}
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built like that of `make wheel`, from a copy: the build writes into the directory it reads."""
    copy = tmp_path_factory.mktemp("source") / "copy"
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    options = ("--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", copy / "dist")
    run(sys.executable, "-m", "pip", "wheel", *options, copy)
    [built] = (copy / "dist").iterdir()
    return built


def copy_installed_package(name: str, environment: Path) -> None:
    """Copy a package from this environment into another one of the same Python."""
    [site_packages] = environment.glob("lib/python*/site-packages")
    for file in distribution(name).files or ():
        if ".." not in file.parts and "__pycache__" not in file.parts:
            target = site_packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(str(file.locate())), target)


@pytest.fixture(scope="module")
def environment(wheel: Path) -> Iterator[Path]:
    """A virtual environment with the client of the wheel and nothing else."""
    with temporary_directory() as directory:
        environment = directory / "environment"
        venv.create(environment, symlinks=True)
        copy_installed_package("msgspec", environment)
        pip = (sys.executable, "-m", "pip", "--python", environment / "bin" / "python")
        run(*pip, "install", "--no-index", "--find-links", wheel.parent, "penstock-mq[client]")
        packages = run(*pip, "list", "--format", "freeze").splitlines()
        assert [line.partition("==")[0] for line in packages] == ["msgspec", "penstock-mq"]
        yield environment


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    source = ROOT / "src"
    files = [file for file in (source / "penstock").rglob("*") if file.is_file()]
    expected = {str(file.relative_to(source)) for file in files if "__pycache__" not in file.parts}
    assert wheel.name.startswith("penstock_mq-")
    assert expected == {name for name in ZipFile(wheel).namelist() if name.startswith("penstock/")}


async def test_the_client_of_the_wheel_needs_msgspec_only(
    environment: Path, broker_url: str, queue: str
) -> None:
    python = environment / "bin" / "python"
    output = await asyncio.to_thread(run, python, "-I", PROGRAM, broker_url, queue)
    file, greeting, left = output.rsplit(maxsplit=2)
    assert Path(file).is_relative_to(environment)
    assert (greeting, left) == ("hi", "0")


def test_the_command_says_what_to_install_if_only_the_client_is_installed(environment: Path) -> None:
    command = [str(environment / "bin" / "penstock"), "status"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    [line] = result.stderr.splitlines()
    assert "pip install 'penstock-mq[server,pipeline,embedded]'" in line
