"""`--watch`: show the output of a command again every few seconds until Ctrl-C."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from penstock.cli.json_output import json_lines
from penstock.cli.options import OUTPUT_PANEL
from penstock.cli.problem_output import show_error
from penstock.errors import PenstockError

MIN_INTERVAL_S, MAX_INTERVAL_S = 0.1, 3600.0
Interval = Annotated[
    float,
    typer.Option(
        min=MIN_INTERVAL_S,
        max=MAX_INTERVAL_S,
        metavar="SECONDS",
        rich_help_panel=OUTPUT_PANEL,
        help="Seconds between two outputs of --watch.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """Whether a command repeats its output, and how often."""

    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            "-w",
            rich_help_panel=OUTPUT_PANEL,
            help="Repeat the output until Ctrl-C; with --json, one line each time.",
        ),
    ] = False
    interval: Interval = 2.0


def watchable(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--watch` and `--interval` to a command that only reads. Apply it below `with_option_groups`.

    The first error ends the command; a later one is shown, and the command goes on.
    """
    signature = inspect.signature(command, eval_str=True)
    option = inspect.Parameter("watch_options", inspect.Parameter.KEYWORD_ONLY, annotation=WatchOptions)

    @wraps(command)
    def run(*, watch_options: WatchOptions, **options: object) -> None:
        if not watch_options.watch:
            command(**options)
            return
        try:
            _repeat(lambda: command(**options), watch_options.interval)
        except KeyboardInterrupt:
            raise typer.Exit(0) from None

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in signature.parameters.values()]
    run.__signature__ = signature.replace(parameters=[*parameters, option])  # type: ignore[attr-defined]
    return run


def _repeat(run: Callable[[], None], interval_s: float) -> None:
    console = Console(highlight=False)
    has_output = False
    with json_lines():
        while True:
            if console.is_terminal:
                console.clear()
                now = datetime.now(UTC).strftime("%H:%M:%S")
                console.print(Text(f"Every {interval_s:g} s · {now} UTC · Ctrl-C ends\n", style="dim"))
            try:
                run()
            except typer.Exit:
                pass  # the exit code of one output says nothing about the next
            except PenstockError as error:
                if not has_output:
                    raise
                show_error(error.detail)
            has_output = True
            sys.stdout.flush()
            time.sleep(interval_s)
