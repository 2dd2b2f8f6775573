"""The units of systemd: accepted by `systemd-analyze`, with commands and settings of Penstock."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.config import load_settings
from tests.unit.deploy.commands import resolve_command

UNITS = sorted((Path(__file__).parents[3] / "deploy" / "systemd").glob("*.service"))
PROGRAM = "/opt/penstock/bin/penstock"
MAX_EXPOSURE = "25"
"""Of 100, from `systemd-analyze security`: 20 when this was written."""

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")


def read_options(unit: Path) -> dict[str, list[str]]:
    """Return the values of each option, of which some occur several times."""
    options: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            options.setdefault(name, []).append(value)
    return options


def test_every_role_has_a_unit() -> None:
    assert [unit.name for unit in UNITS] == [
        f"penstock-{role}.service" for role in ("alerts", "broker", "migrate", "pipeline")
    ]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_runs_a_command_with_valid_settings(unit: Path) -> None:
    options = read_options(unit)
    [start] = options["ExecStart"]
    program, *arguments = shlex.split(start)
    assert program == PROGRAM
    resolve_command(arguments)
    variables = dict(pair.split("=", 1) for line in options["Environment"] for pair in line.split())
    assert variables.pop("PENSTOCK_CONFIG") == "/etc/penstock/penstock.toml"
    settings = load_settings(variables)
    assert str(settings.home) == f"/var/lib/{options['StateDirectory'][0]}"
    if "serve" in arguments:
        assert settings.drain_s > 0
        assert int(options["TimeoutStopSec"][0]) >= settings.drain_s + 25


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_accepts_the_unit_and_rates_it_as_restricted(unit: Path, tmp_path: Path) -> None:
    """The program is not installed here, so another one stands in its place."""
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace(PROGRAM, "/bin/true"))
    for arguments in (["verify", "--man=no"], ["security", "--offline=true", f"--threshold={MAX_EXPOSURE}"]):
        command = ["systemd-analyze", *arguments, str(copy)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
        if "verify" in arguments:
            assert str(copy) not in result.stderr
