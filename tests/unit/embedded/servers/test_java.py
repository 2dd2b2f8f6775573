"""The choice of Java for Spark, and the wrapper that drops one argument."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from penstock.embedded.servers.java import find_java, write_wrapper
from penstock.errors import ComponentFailed

VECTOR_MODULE = "--add-modules=jdk.incubator.vector"


def create_fake_java(home: Path, version: str, exit_code: int = 0) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\nexit {exit_code}\n")
    program.chmod(0o755)
    return home


def test_the_wrapper_drops_the_vector_module_and_keeps_all_other_arguments(tmp_path: Path) -> None:
    real_java = tmp_path / "real java"
    real_java.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    real_java.chmod(0o755)
    home = write_wrapper(tmp_path / "home", real_java)
    arguments = ["-cp", "a b:c", VECTOR_MODULE, "-Dx=$HOME 'q'", "", "Main", "*"]
    result = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert result.stdout == "".join(f"{argument}|" for argument in arguments if argument != VECTOR_MODULE)


def test_an_unchanged_wrapper_is_not_rewritten(tmp_path: Path) -> None:
    program = write_wrapper(tmp_path / "home", tmp_path / "java") / "bin" / "java"
    inode = program.stat().st_ino
    write_wrapper(tmp_path / "home", tmp_path / "java")
    assert program.stat().st_ino == inode


def test_an_installed_java_that_runs_is_preferred(tmp_path: Path) -> None:
    installed = create_fake_java(tmp_path / "jdk", "21.0.2")
    java = find_java(tmp_path / "home", {"JAVA_HOME": str(installed), "PATH": ""})
    assert (java.home, java.major_version, java.is_packaged) == (installed, 21, False)


@pytest.mark.parametrize(("version", "exit_code"), [("11.0.2", 0), ("1.8.0_292", 0), ("17.0.1", 1)])
def test_an_installed_java_that_is_too_old_or_broken_is_skipped(
    tmp_path: Path, version: str, exit_code: int
) -> None:
    unusable = create_fake_java(tmp_path / "jdk", version, exit_code)
    environ = {"JAVA_HOME": str(unusable), "PATH": ""}
    java = find_java(tmp_path / "home", environ, installed_patterns=())
    assert java.is_packaged
    assert java.home == tmp_path / "home" / "java"


def test_the_packaged_java_runs_despite_the_unsupported_argument(tmp_path: Path) -> None:
    java = find_java(tmp_path, {"PATH": ""}, installed_patterns=())
    environment = {**os.environ, "JAVA_HOME": str(java.home)}
    subprocess.run([java.home / "bin" / "java", VECTOR_MODULE, "-version"], check=True, env=environment)


def test_without_any_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ComponentFailed, match=r"17, 21, 25\), and this machine has none.*JAVA_HOME"):
        find_java(tmp_path, {"PATH": ""}, installed_patterns=(), package="no_such_java_package")
