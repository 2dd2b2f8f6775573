"""`penstock dlq …`: dead letters looked at, requeued and purged."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from penstock.cli.dlq_tables import (
    groups_table,
    job_words,
    jobs_table,
    letter_text,
    letters_table,
    status_table,
)
from penstock.config import load_settings

if TYPE_CHECKING:
    from penstock.cli.broker_http import BrokerHttp

dlq = typer.Typer(help="Dead letters: what consumer groups gave up on.", no_args_is_help=True)

POLL_S = 0.2
ENDED = ("done", "cancelled", "failed")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Url = Annotated[str | None, typer.Option("--url", help="The broker, if not the one of the settings.")]
Token = Annotated[str | None, typer.Option("--token", help="A token, if not the one of the settings.")]
QueueOption = Annotated[str | None, typer.Option("--queue", "-q", help="Only of this queue.")]
GroupOption = Annotated[str | None, typer.Option("--group", "-g", help="Only of this consumer group.")]
PartitionOption = Annotated[str | None, typer.Option(help="Only of this partition.")]
StartOption = Annotated[str | None, typer.Option("--from", help="Died then or later; ISO 8601, UTC.")]
EndOption = Annotated[str | None, typer.Option("--to", help="Died before then.")]
ErrorOption = Annotated[str | None, typer.Option(help="Has this in its error.")]
ErrorGroupOption = Annotated[str | None, typer.Option(help="Of this group of errors: see `dlq groups`.")]
PayloadOption = Annotated[str | None, typer.Option(help="Has this in its payload.")]
All = Annotated[bool, typer.Option("--all", help="Every dead letter there is.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
Rate = Annotated[int | None, typer.Option(min=1, max=100_000, help="Letters a second at most.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Detach = Annotated[bool, typer.Option("--detach", help="Do not wait for the job.")]
Letters = Annotated[list[str] | None, typer.Argument(help="Ids of letters; or choose by options.")]


def _broker(url: str | None, token: str | None) -> BrokerHttp:
    from penstock.cli.broker_http import BrokerHttp

    return BrokerHttp.of(load_settings(), url, token)


def _print(content: Any) -> None:
    print(json.dumps(content, indent=2, ensure_ascii=False))


@dlq.command()
def status(
    queue: QueueOption = None,
    group: GroupOption = None,
    as_json: AsJson = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """How many dead letters each queue and group has."""
    with _broker(url, token) as broker:
        body = broker.get("/api/v1/dlq/status", queue=queue, consumerGroup=group)
    if as_json:
        _print(body)
    else:
        Console(highlight=False).print(status_table(body))


@dlq.command("ls")
def list_letters(
    queue: QueueOption = None,
    group: GroupOption = None,
    partition: PartitionOption = None,
    start: StartOption = None,
    end: EndOption = None,
    error: ErrorOption = None,
    error_group: ErrorGroupOption = None,
    payload: PayloadOption = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=1_000, help="How many at most.")] = 20,
    as_json: AsJson = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """List dead letters, the latest first."""
    wanted = {
        "queue": queue,
        "consumerGroup": group,
        "partition": partition,
        "from": start,
        "to": end,
        "error": error,
        "errorGroup": error_group,
        "payload": payload,
    }
    with _broker(url, token) as broker:
        body = broker.get("/api/v1/dlq", **wanted, limit=limit)
        found = body["messages"]
        while len(found) < limit and body["nextCursor"]:
            body = broker.get("/api/v1/dlq", **wanted, limit=limit - len(found), cursor=body["nextCursor"])
            found += body["messages"]
    if as_json:
        _print(found)
    elif not found:
        print("No dead letters match.")
    else:
        Console(highlight=False).print(letters_table(found, body))


@dlq.command()
def show(
    letter: Annotated[str, typer.Argument(help="The letter's id, as `dlq ls` tells it.")],
    as_json: AsJson = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Show one dead letter: payload, error, attempts, and the lives it had before."""
    with _broker(url, token) as broker:
        body = broker.get(f"/api/v1/dlq/letters/{letter}")
    if as_json:
        _print(body)
    else:
        Console(highlight=False).print(letter_text(body))


@dlq.command()
def groups(
    queue: QueueOption = None,
    group: GroupOption = None,
    hours: Annotated[int, typer.Option(min=1, max=168, help="How far the trend goes back.")] = 24,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=1_000, help="How many at most.")] = 20,
    as_json: AsJson = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """What dead letters died of, the most frequent first, with a trend by the hour."""
    with _broker(url, token) as broker:
        body = broker.get("/api/v1/dlq/groups", queue=queue, consumerGroup=group, hours=hours, limit=limit)
    if as_json:
        _print(body["groups"])
    elif not body["groups"]:
        print("There are no dead letters.")
    else:
        Console(highlight=False).print(groups_table(body))


def _acting(action: str) -> Callable[..., None]:
    """The command that makes a job of this kind."""

    def command(
        letters: Letters = None,
        queue: QueueOption = None,
        group: GroupOption = None,
        partition: PartitionOption = None,
        start: StartOption = None,
        end: EndOption = None,
        error: ErrorOption = None,
        error_group: ErrorGroupOption = None,
        payload: PayloadOption = None,
        everything: All = False,
        rate: Rate = None,
        dry_run: DryRun = False,
        yes: Yes = False,
        detach: Detach = False,
        as_json: AsJson = False,
        url: Url = None,
        token: Token = None,
    ) -> None:
        chosen = _selection(
            letters, queue, group, partition, start, end, error, error_group, payload, everything
        )
        _work(action, chosen, rate, dry_run, yes, detach, as_json, url, token)

    return command


_ENDS = "Exit code 0 when it is done, 1 when it was not or only in part."
for _action, _what in (
    (
        "requeue",
        "Push dead messages again, each to the end of its partition, for the group that gave up on it.",
    ),
    ("purge", "Delete dead letters for good."),
):
    dlq.command(_action, help=f"{_what}\n\n{_ENDS}")(_acting(_action))


@dlq.command()
def jobs(as_json: AsJson = False, url: Url = None, token: Token = None) -> None:
    """List requeues and purges, the latest first, with how far they have come."""
    with _broker(url, token) as broker:
        body = broker.get("/api/v1/jobs")
    if as_json:
        _print(body["jobs"])
    elif not body["jobs"]:
        print("There are no jobs.")
    else:
        Console(highlight=False).print(jobs_table(body["jobs"]))


@dlq.command()
def cancel(
    job: Annotated[str, typer.Argument(help="The job's id, as `dlq jobs` tells it.")],
    as_json: AsJson = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Stop a requeue or purge; what it has done stays done."""
    with _broker(url, token) as broker:
        body = broker.post(f"/api/v1/jobs/{job}/cancel")
    _print(body) if as_json else print(job_words(body))


def _selection(letters: list[str] | None, *options: Any) -> dict[str, Any]:
    names = ("queue", "consumerGroup", "partition", "from", "to", "error", "errorGroup", "payload", "all")
    body = {name: value for name, value in zip(names, options, strict=True) if value not in (None, False)}
    return body | ({"letterIds": letters} if letters else {})


def _work(
    kind: str,
    body: dict[str, Any],
    rate: int | None,
    dry_run: bool,
    yes: bool,
    detach: bool,
    as_json: bool,
    url: str | None,
    token: str | None,
) -> None:
    with _broker(url, token) as broker:
        path = f"/api/v1/dlq/{kind}"
        found = broker.post(path, body | {"dryRun": True})
        if dry_run:
            _print(found) if as_json else print(_would(kind, found))
            raise typer.Exit(0)
        if not (yes or as_json):
            print(_would(kind, found))
            if not found["total"] or not typer.confirm("Go on?"):
                raise typer.Exit(0 if not found["total"] else 1)
        job = broker.post(path, body | ({"ratePerSecond": rate} if rate else {}))
        if not detach:
            job = _watch(broker, job, quiet=as_json)
    _print(job) if as_json else print(job_words(job))
    raise typer.Exit(0 if detach or job["state"] == "done" else 1)


def _would(kind: str, found: dict[str, Any]) -> str:
    words = {"requeue": "be requeued", "purge": "be deleted for good"}[kind]
    number = f"{found['total']:,}" if found["totalIsExact"] else f"at least {found['total']:,}"
    return f"{number} dead {'letter' if found['total'] == 1 else 'letters'} would {words}."


def _watch(broker: BrokerHttp, job: dict[str, Any], quiet: bool) -> dict[str, Any]:
    """Show a bar until the job has ended. Ctrl-C leaves the job running, and says so."""
    console = Console(stderr=True, highlight=False, quiet=quiet)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TaskProgressColumn())
    try:
        with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
            words = {"requeue": "Requeueing", "purge": "Purging"}[job["kind"]]
            total = job["total"] if job["totalIsExact"] else None
            task = bar.add_task(words, total=total)
            while job["state"] not in ENDED:
                time.sleep(POLL_S)
                job = broker.get(f"/api/v1/jobs/{job['id']}")
                bar.update(task, completed=job["changed"], description=job["note"] or words)
    except KeyboardInterrupt:
        print(f"The job goes on. `penstock dlq cancel {job['id']}` stops it.")
        raise typer.Exit(1) from None
    return job
