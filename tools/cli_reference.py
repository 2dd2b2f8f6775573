"""Generate docs/reference/cli.md from the commands of `penstock`. `tools/reference.py` writes the page."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_args
from uuid import UUID

import typer

from penstock.cli.command_examples import EXAMPLES
from penstock.cli.exit_codes import MEANINGS
from penstock.cli.main import app
from penstock.cli.options import BROKER_PANEL, OUTPUT_PANEL

VERBS = {
    "`ls`": "list objects of one kind",
    "`show`": "show one object",
    "`create`": "create one object",
    "`rm`": "delete one object, after a confirmation; `--yes` skips it",
    "`status`": "sum up a state; the exit code is 1 if something is wrong",
    "`pause`, `resume`": "stop and start consumption",
    "`seek`": "move a position",
    "`retry`, `requeue`": "try again what failed: an operation or a notice; a dead message or task",
    "`cancel`": "stop what has not finished: a job or an operation",
    "`purge`": "drop all that waits; it is lost",
    "`search`": "find objects by their content, with progress",
    "`export`": "write all objects to a file or to the standard output",
    "`apply`, `diff`": "make the broker match a file; show what would change",
}
WITHOUT_JSON = {
    "alerts run": "runs until Ctrl-C",
    "logs": "prints the lines of a log file",
    "pipeline run": "runs until Ctrl-C; `penstock pipeline status --json` has its state",
    "scaler": "runs until Ctrl-C",
    "serve": "runs until Ctrl-C",
    "up": "runs until Ctrl-C; `penstock status --json` has the state",
}
"""Commands that do not print JSON, and why."""

SHARED_PANELS = (OUTPUT_PANEL, BROKER_PANEL)
INTRODUCTION = """\
# Command line

`penstock COMMAND --help` shows the same texts. Commands that call a broker find the platform that runs on
`PENSTOCK_HOME`; `--url` names another broker. Tables fit the width of the terminal, and ids are never cut.
Errors go to the standard error, in one line that says what to do.

## Verbs

The same verb does the same thing everywhere.
"""
COMPLETION = """\
## Shell completion

`penstock --install-completion` adds completion to bash, zsh or fish; `penstock --show-completion` prints the
script instead. Tab completes commands and options, and asks the running broker for names of queues and
consumer groups.
"""


def leaf_commands(command: Any = None, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every visible command with its words, without the leading `penstock`."""
    command = command or typer.main.get_command(app)
    for name, child in sorted(getattr(command, "commands", {}).items()):
        if child.hidden:
            continue
        if hasattr(child, "commands"):
            yield from leaf_commands(child, (*words, name))
        else:
            yield " ".join((*words, name)), child


def cli_page() -> str:
    commands = dict(leaf_commands())
    lines = [
        INTRODUCTION,
        *_table(("Verb", "Meaning"), VERBS.items()),
        "",
        "## Exit codes",
        "",
        *_table(("Code", "Meaning"), ((str(int(code)), text) for code, text in MEANINGS.items())),
        "",
        COMPLETION,
        "## Common options",
        "",
        "Most commands that call a broker have these options. `--watch` belongs to commands that only read.",
        "",
        *_option_table(_shared_options(commands)),
        "",
        "These commands print no JSON:",
        "",
        *_table(("Command", "Reason"), ((f"`penstock {name}`", text) for name, text in WITHOUT_JSON.items())),
        "",
    ]
    for name, command in commands.items():
        lines += _command_section(name, command)
    return "\n".join(lines)


def _command_section(name: str, command: Any) -> list[str]:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [
        param
        for param in command.params
        if param.param_type_name == "option"
        and param.name != "help"
        and param.rich_help_panel not in SHARED_PANELS
    ]
    usage = " ".join([f"penstock {name}", "[OPTIONS]", *map(_argument_text, arguments)])
    description = (command.help or "").replace("\f", "").strip()
    lines = [f"## penstock {name}", "", description, "", "```", usage, "```", ""]
    if arguments or options:
        lines += [*_option_table([*arguments, *options]), ""]
    lines += ["```", *(f"penstock {example}" for example in EXAMPLES[name]), "```", ""]
    return lines


def _shared_options(commands: dict[str, Any]) -> list[Any]:
    """Return each option of the shared groups once, in the order of the help."""
    options = {
        param.name: param
        for command in commands.values()
        for param in command.params
        if getattr(param, "rich_help_panel", None) in SHARED_PANELS
    }
    order = ["as_json", "watch", "interval", "url", "token", "environment"]
    return sorted(options.values(), key=lambda param: order.index(param.name))


def _argument_text(param: Any) -> str:
    text = (param.metavar or param.name).upper() + ("..." if param.nargs == -1 else "")
    return text if param.required else f"[{text}]"


def _option_table(params: list[Any]) -> list[str]:
    rows = ((_param_text(param), _help_text(param)) for param in params)
    return _table(("Argument or option", "Meaning"), rows)


def _param_text(param: Any) -> str:
    if param.param_type_name == "argument":
        return f"`{_argument_text(param)}`"
    names = ", ".join(f"`{name}`" for name in [*param.opts, *param.secondary_opts])
    if param.is_flag:
        return names
    return f"{names} {param.metavar or _value_text(param.type_descriptor.annotation)}"


def _value_text(annotation: Any) -> str:
    """Return what a user writes as the value of an option of this type."""
    kinds = [kind for kind in get_args(annotation) or (annotation,) if isinstance(kind, type)]
    kind = next((kind for kind in kinds if kind is not type(None)), str)
    if issubclass(kind, Enum):
        return "\\|".join(str(member.value) for member in kind)
    names = {int: "NUMBER", float: "NUMBER", UUID: "ID", Path: "FILE"}
    return names.get(kind, "TEXT")


def _choice_text(choice: Any) -> str:
    return str(choice.value if isinstance(choice, Enum) else choice)


def _help_text(param: Any) -> str:
    text = (param.help or "").replace("|", "\\|")
    if param.default not in (None, False, True, [], ()) and "efault" not in text:
        text += f" Default: {_choice_text(param.default)}."
    if getattr(param, "envvar", None):
        text += f" Variable: `{param.envvar}`."
    return text


def _table(head: tuple[str, ...], rows: Any) -> list[str]:
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows)]
