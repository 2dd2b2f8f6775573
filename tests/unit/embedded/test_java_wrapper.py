"""Java for Spark: which one is chosen, and that the wrapper changes nothing but the one argument."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from penstock.embedded.servers import java
from penstock.errors import ComponentFailed

VECTOR = "--add-modules=jdk.incubator.vector"


def fake_java(home: Path, version: str, exit_code: int = 0) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\nexit {exit_code}\n")
    program.chmod(0o755)
    return home


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without Java: only JAVA_HOME is looked at."""
    installed = java._installed
    monkeypatch.setattr(
        java, "_installed", lambda env: (home for home in installed(env) if str(home) == env.get("JAVA_HOME"))
    )


def test_the_wrapper_drops_the_vector_module_and_keeps_every_other_word(tmp_path: Path) -> None:
    real = tmp_path / "real java"
    real.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    real.chmod(0o755)
    home = java.write_wrapper(tmp_path / "home", real)
    words = ["-cp", "a b:c", VECTOR, "-Dx=$HOME 'q'", "", "Main", "*"]
    done = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, check=True)
    assert done.stdout == "".join(f"{word}|" for word in words if word != VECTOR)


def test_the_wrapper_is_not_rewritten_when_nothing_changed(tmp_path: Path) -> None:
    program = java.write_wrapper(tmp_path / "home", tmp_path / "java") / "bin" / "java"
    before = program.stat().st_ino
    java.write_wrapper(tmp_path / "home", tmp_path / "java")
    assert program.stat().st_ino == before


def test_an_installed_java_that_runs_is_preferred(tmp_path: Path) -> None:
    installed = fake_java(tmp_path / "jdk", "21.0.2")
    found = java.find_java(tmp_path / "home", {"JAVA_HOME": str(installed), "PATH": ""})
    assert (found.home, found.major, found.packaged) == (installed, 21, False)


@pytest.mark.parametrize(("version", "exit_code"), [("11.0.2", 0), ("1.8.0_292", 0), ("17.0.1", 1)])
@pytest.mark.usefixtures("nothing_installed")
def test_a_java_too_old_or_broken_is_passed_over(tmp_path: Path, version: str, exit_code: int) -> None:
    useless = fake_java(tmp_path / "jdk", version, exit_code)
    found = java.find_java(tmp_path / "home", {"JAVA_HOME": str(useless), "PATH": ""})
    assert found.packaged
    assert found.home == tmp_path / "home" / "java"


@pytest.mark.usefixtures("nothing_installed")
def test_the_packaged_java_runs_with_the_argument_it_does_not_know(tmp_path: Path) -> None:
    found = java.find_java(tmp_path, {"PATH": ""})
    environment = {**os.environ, "JAVA_HOME": str(found.home)}
    subprocess.run([found.home / "bin" / "java", VECTOR, "-version"], check=True, env=environment)


@pytest.mark.usefixtures("nothing_installed")
def test_without_any_java_the_words_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "_packaged", lambda: None)
    with pytest.raises(ComponentFailed, match=r"Java 17, 21, 25 and none runs here.*JAVA_HOME"):
        java.find_java(tmp_path, {"PATH": ""})
