"""`penstock top`: a live screen in a terminal, a plain table elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from penstock.cli.json_output import json_lines, print_json
from penstock.cli.listing import print_output
from penstock.cli.options import BrokerOptions, with_option_groups
from penstock.cli.top.top_reader import TopSelection, TopSort, read_snapshot
from penstock.cli.top.top_table import plain_table
from penstock.cli.watch import MAX_INTERVAL_S, MIN_INTERVAL_S

DEFAULT_INTERVAL_S = 2.0


@with_option_groups
def top(
    *,
    search: Annotated[
        str, typer.Option("--search", "-s", help="Only queues with this text in the name.")
    ] = "",
    sort: Annotated[TopSort, typer.Option(help="Order of the queues.")] = TopSort.DEPTH,
    reverse: Annotated[bool, typer.Option("--reverse", help="Reverse the order.")] = False,
    problems: Annotated[
        bool, typer.Option("--problems", help="Only queues that something holds back.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="Number of queues.")] = 100,
    once: Annotated[bool, typer.Option("--once", help="Print one table and exit.")] = False,
    interval: Annotated[
        float | None,
        typer.Option(
            min=MIN_INTERVAL_S,
            max=MAX_INTERVAL_S,
            metavar="SECONDS",
            help="Seconds between two reads. Default: 2 on a terminal; elsewhere, one table.",
        ),
    ] = None,
    broker_options: BrokerOptions,
) -> None:
    """Show queues, rates, waits, dead letters, workers and incidents, live.

    Keys: / filters by name, s sorts by the next column, n w i u t o d sort by name, waiting, in, out, wait,
    oldest and dead, r reverses, p shows only queues with a problem, space freezes, q quits.
    """
    selection = TopSelection(search, sort, reverse, problems, limit)
    with broker_options.connect() as broker:
        if sys.stdout.isatty() and not (once or broker_options.as_json):
            from penstock.cli.top.top_screen import TopScreen  # Textual takes a quarter of a second

            read_snapshot(broker, selection)  # an error before the screen opens ends the command
            screen = TopScreen(
                lambda selected: read_snapshot(broker, selected), selection, interval or DEFAULT_INTERVAL_S
            )
            screen.run()
            return
        repeats = interval is not None and not once
        with json_lines(repeats):
            while True:
                snapshot = read_snapshot(broker, selection)
                if broker_options.as_json:
                    print_json(snapshot.to_json())
                else:
                    print_output(plain_table(snapshot))
                if not repeats or interval is None:
                    return
                sys.stdout.flush()
                time.sleep(interval)
