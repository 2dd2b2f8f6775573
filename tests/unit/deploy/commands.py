"""Check that a deployed command line is one of `penstock`."""

from __future__ import annotations

from typer.testing import CliRunner

from penstock.cli.main import app


def resolve_command(arguments: list[str]) -> None:
    """Fail if `penstock` has no such command."""
    result = CliRunner().invoke(app, [*arguments, "--help"])
    assert result.exit_code == 0, result.output
    assert f"penstock {' '.join(arguments)} " in result.output.replace("root", "penstock"), result.output
