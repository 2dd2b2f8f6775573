"""Every command has an example that parses, JSON output or a reason, and `--watch` if it lists or shows."""

from __future__ import annotations

import runpy
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli.command_examples import EXAMPLES
from penstock.cli.main import app

REFERENCE = runpy.run_path(str(Path(__file__).parents[3] / "tools" / "cli_reference.py"))
COMMANDS: dict[str, Any] = dict(REFERENCE["leaf_commands"]())


def option_names(command: Any) -> set[str]:
    return {name for param in command.params for name in param.opts}


def test_every_command_and_no_other_has_examples() -> None:
    assert set(EXAMPLES) == set(COMMANDS)


@pytest.mark.parametrize(
    ("words", "example"), [(words, example) for words, examples in EXAMPLES.items() for example in examples]
)
def test_an_example_parses_as_its_command(words: str, example: str) -> None:
    arguments = shlex.split(example.partition(" > ")[0].partition(" < ")[0])
    command_words = words.split()
    assert arguments[: len(command_words)] == command_words
    context = COMMANDS[words].make_context(words, arguments[len(command_words) :])
    assert context.args == []


def test_every_command_prints_json_or_says_why_not() -> None:
    without_json = {words for words, command in COMMANDS.items() if "--json" not in option_names(command)}
    assert without_json == set(REFERENCE["WITHOUT_JSON"])


def test_every_command_that_lists_or_shows_can_repeat_its_output() -> None:
    readers = [words for words in COMMANDS if words.split()[-1] in ("ls", "show", "status")]
    assert readers
    assert [
        words
        for words in readers
        if "--watch" not in option_names(COMMANDS[words]) and words != "audit show"  # an entry never changes
    ] == []


def test_the_help_of_a_command_ends_with_its_examples() -> None:
    output = CliRunner().invoke(app, ["queues", "limit", "--help"], env={"COLUMNS": "80"}).output
    assert output.rstrip().endswith("penstock queues limit renders 10")


def test_environments_is_another_name_of_env_that_the_help_does_not_show() -> None:
    assert "environments " not in CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output
    assert CliRunner().invoke(app, ["environments", "ls", "--help"]).exit_code == 0
