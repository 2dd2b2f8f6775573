"""`penstock queues …`: durable queues and run queues looked at, run queues paused and limited."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.text import Text

from penstock.cli.tables import format_duration, plain_table
from penstock.config import load_settings
from penstock.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.cli.broker_http import BrokerHttp

queues = typer.Typer(
    help="Queues: what they hold; run queues can be paused and limited.", no_args_is_help=True
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Url = Annotated[str | None, typer.Option("--url", help="The broker, if not the one of the settings.")]
Search = Annotated[str | None, typer.Option("--search", "-s", help="A part of the name.")]
Most = Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000, help="How many of each kind at most.")]
Name = Annotated[str, typer.Argument(help="The run queue.")]
Concurrency = Annotated[str, typer.Argument(help="How many tasks may run at once, or `none` for no limit.")]


def _broker(url: str | None) -> BrokerHttp:
    from penstock.cli.broker_http import BrokerHttp

    return BrokerHttp.of(load_settings(), url, None)


@queues.command("ls")
def list_queues(search: Search = None, limit: Most = 100, as_json: AsJson = False, url: Url = None) -> None:
    """Durable queues and run queues by name, with what waits and what runs."""
    with _broker(url) as broker:
        durable = broker.get("/api/v1/resources/queues", search=search, limit=limit)
        run = broker.get("/api/v1/run-queues", search=search, limit=limit)
    rows = [_durable(queue) for queue in durable["queues"]] + [_run(queue) for queue in run["queues"]]
    rows.sort(key=lambda row: row["name"])
    total = durable["total"] + run["total"]
    if as_json:
        print(json.dumps({"queues": rows, "total": total}, indent=2, ensure_ascii=False))
    else:
        Console(highlight=False).print(_table(rows, total))


@queues.command()
def pause(queue: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Hand out no more tasks of a run queue; what runs goes on."""
    with _broker(url) as broker:
        state = broker.post(f"{_path(queue)}/pause")
    _tell(state, as_json, f"{queue} is paused: {state['depth']:,} wait, {state['running']:,} run.")


@queues.command()
def resume(queue: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Hand out tasks of a run queue again."""
    with _broker(url) as broker:
        state = broker.post(f"{_path(queue)}/resume")
    _tell(state, as_json, f"{queue} goes on: {state['depth']:,} wait, {state['running']:,} run.")


@queues.command()
def limit(queue: Name, concurrency: Concurrency, as_json: AsJson = False, url: Url = None) -> None:
    """Set how many tasks of a run queue may run at once."""
    if concurrency != "none" and not (concurrency.isascii() and concurrency.isdigit()):
        raise InvalidRequest(f"the limit is a number or `none`, not {concurrency!r}")
    body = {"concurrency": None if concurrency == "none" else int(concurrency)}
    with _broker(url) as broker:
        state = broker.put(f"{_path(queue)}/limits", body)
    words = "no limit" if state["concurrency"] is None else f"a limit of {state['concurrency']:,}"
    _tell(state, as_json, f"{queue} has {words}: {state['depth']:,} wait, {state['running']:,} run.")


def _tell(state: dict[str, Any], as_json: bool, words: str) -> None:
    print(json.dumps(state, indent=2, ensure_ascii=False) if as_json else words)


def _path(queue: str) -> str:
    return f"/api/v1/run-queues/{quote(queue, safe='')}"


def _durable(queue: dict[str, Any]) -> dict[str, Any]:
    names = ("name", "depth", "running", "partitions")
    return {"kind": "durable"} | {name: queue[name] for name in names}


def _run(queue: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "run"} | queue


def _table(rows: list[dict[str, Any]], total: int) -> RenderableType:
    if not rows:
        return Text("No queues. The first push or task makes one.")
    table = plain_table("Queue", "Kind", "Waiting", "Running", "Limit", "Oldest", "")
    for row in rows:
        limit, oldest, notes = "–", "–", []
        if row["kind"] == "run":
            limit = "none" if row["concurrency"] is None else f"{row['concurrency']:,}"
            oldest = format_duration(row["oldestAgeMs"] / 1000) if row["depth"] else "–"
            notes += [f"{row['delayed']:,} delayed"] if row["delayed"] else []
            notes += [f"[red]{row['dead']:,} dead[/red]"] if row["dead"] else []
            notes += ["[yellow]paused[/yellow]"] if row["paused"] else []
        else:
            notes.append(f"{row['partitions']:,} partition{'' if row['partitions'] == 1 else 's'}")
        table.add_row(
            *(escape(row["name"]), row["kind"], f"{row['depth']:,}", f"{row['running']:,}", limit, oldest),
            ", ".join(notes),
        )
    if total <= len(rows):
        return table
    return Group(table, Text(f"\n{len(rows):,} of {total:,}: use --search or --limit.", style="dim"))
