"""Check that a deployed command line is one of `penstock`."""

from __future__ import annotations

import click
import typer.main

from penstock.cli.main import app


def resolve_command(arguments: list[str]) -> None:
    """Raise if `penstock` has no such command, or if the command does not take the options."""
    command: click.Command = typer.main.get_command(app)
    context = click.Context(command)
    rest = list(arguments)
    while isinstance(command, click.Group):
        _, found, rest = command.resolve_command(context, rest)
        assert found is not None, arguments
        command = found
        context = click.Context(command, parent=context)
    command.parse_args(context, rest)
