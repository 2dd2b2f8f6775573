"""`penstock dlq …`: list, requeue and purge dead letters."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

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

from penstock.cli.dlq_group_commands import add_group_commands
from penstock.cli.dlq_options import FilterOptions, GroupOption, JobOptions, MaxRows, QueueOption
from penstock.cli.dlq_tables import (
    dead_letter_counts,
    dead_letter_details,
    dead_letter_list,
    describe_dry_run,
    describe_job,
    job_list,
)
from penstock.cli.json_output import print_json
from penstock.cli.options import BrokerOptions, with_option_groups
from penstock.cli.queue_kind import require_queue
from penstock.cli.watch import watchable
from penstock.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.cli.broker_client import BrokerClient, JobDocument

dlq = typer.Typer(
    help="List, requeue and purge dead letters: messages and tasks that consumers gave up on.",
    no_args_is_help=True,
)

JOB_POLL_INTERVAL_S = 0.2
JOB_DESCRIPTIONS = {"requeue": "Requeueing", "purge": "Purging"}
FINISHED_JOB_STATES = ("done", "cancelled", "failed")
DEAD_LETTER_ID = re.compile(r"[1-9][0-9]{0,18}|[0-9a-f-]{32,36}-[0-9]{1,4}")
"""The id of a dead message, or of a dead task."""

DeadLetterIds = Annotated[
    list[str] | None, typer.Argument(help="Ids of dead letters. Without ids, use the options to select.")
]


@dlq.command()
@with_option_groups
@watchable
def status(*, queue: QueueOption = None, group: GroupOption = None, broker_options: BrokerOptions) -> None:
    """Count the dead letters of each queue and consumer group."""
    from penstock.cli.broker_client import DeadLetterStatusDocument

    with broker_options.connect() as broker:
        body = broker.get("/api/v1/dlq/status", DeadLetterStatusDocument, queue=queue, consumerGroup=group)
        if queue and not body["groups"]:
            require_queue(broker, queue)
    broker_options.print(body, dead_letter_counts(body))


@dlq.command("ls")
@with_option_groups
@watchable
def list_dead_letters(
    *, filter_options: FilterOptions, limit: MaxRows = 20, broker_options: BrokerOptions
) -> None:
    """List dead letters, the latest first."""
    from penstock.cli.broker_client import DeadLetterPageDocument

    filters = filter_options.to_json()
    with broker_options.connect() as broker:
        page = broker.get("/api/v1/dlq", DeadLetterPageDocument, **filters, limit=limit)
        dead_letters = page["messages"]
        while len(dead_letters) < limit and page["nextCursor"]:
            remaining = limit - len(dead_letters)
            page = broker.get(
                "/api/v1/dlq", DeadLetterPageDocument, **filters, limit=remaining, cursor=page["nextCursor"]
            )
            dead_letters += page["messages"]
        if filter_options.queue and not dead_letters:
            require_queue(broker, filter_options.queue)
    broker_options.print(dead_letters, dead_letter_list(dead_letters, page))


@dlq.command()
@with_option_groups
@watchable
def show(
    dead_letter_id: Annotated[str, typer.Argument(help="Id of the dead letter, as `dlq ls` shows it.")],
    broker_options: BrokerOptions,
) -> None:
    """Show one dead letter: payload, error, attempts, and how often it died."""
    from penstock.cli.broker_client import DeadLetterDocument

    with broker_options.connect() as broker:
        body = broker.get(f"/api/v1/dlq/letters/{_check_dead_letter_id(dead_letter_id)}", DeadLetterDocument)
    broker_options.print(body, dead_letter_details(body))


add_group_commands(dlq)


def _build_job_command(kind: str) -> Callable[..., None]:
    """Build the command that starts a job of this kind."""

    def command(
        filter_options: FilterOptions,
        job_options: JobOptions,
        broker_options: BrokerOptions,
        dead_letter_ids: DeadLetterIds = None,
    ) -> None:
        filters = filter_options.to_json()
        selection: dict[str, object] = {**filters}
        if job_options.select_all:
            selection["all"] = True
        if dead_letter_ids:
            selection["letterIds"] = [*map(_check_dead_letter_id, dead_letter_ids)]
        if not selection:
            raise InvalidRequest("No dead letters are selected. Give ids, filter options, or --all.")
        if job_options.sample is not None and kind != "requeue":
            raise InvalidRequest("Only a requeue has a sample. Omit --sample.")
        if bool(filters) + job_options.select_all + bool(dead_letter_ids) > 1:
            raise InvalidRequest("Ids, filter options and --all cannot be combined. Give one of them.")
        _run_job(kind, selection, job_options, broker_options)

    return with_option_groups(command)


_EXIT_CODES = "Exit code 0 when the job is done, 1 when it did not start, was cancelled or failed."
for _kind, _summary in (
    (
        "requeue",
        "Push dead messages to the end of their partitions again, for the group that gave up on them.",
    ),
    ("purge", "Delete dead letters permanently."),
):
    dlq.command(_kind, help=f"{_summary}\n\n{_EXIT_CODES}")(_build_job_command(_kind))


@dlq.command()
@with_option_groups
@watchable
def jobs(broker_options: BrokerOptions) -> None:
    """List jobs on dead letters, messages and tasks with their progress, the latest first."""
    from penstock.cli.broker_client import JobPageDocument

    with broker_options.connect() as broker:
        page = broker.get("/api/v1/jobs", JobPageDocument)
    broker_options.print(page["jobs"], job_list(page["jobs"]))


@dlq.command()
@with_option_groups
def cancel(
    job_id: Annotated[str, typer.Argument(help="Id of the job, as `dlq jobs` shows it.")],
    broker_options: BrokerOptions,
) -> None:
    """Cancel a job. The changes it has made remain."""
    from penstock.cli.broker_client import JobDocument

    with broker_options.connect() as broker:
        job = broker.post(f"/api/v1/jobs/{_check_job_id(job_id)}/cancel", JobDocument)
    _print_job(job, broker_options.as_json)


def _check_dead_letter_id(text: str) -> str:
    """Return the id. Raises InvalidRequest for a text that is the id of neither a message nor a task."""
    if not DEAD_LETTER_ID.fullmatch(text):
        raise InvalidRequest(f"{text!r} is not the id of a dead letter. `penstock dlq ls` shows the ids.")
    return text


def _check_job_id(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise InvalidRequest(f"{text!r} is not the id of a job. `penstock dlq jobs` shows the ids.") from None


def _run_job(
    kind: str, selection: dict[str, object], job_options: JobOptions, broker_options: BrokerOptions
) -> None:
    from penstock.cli.broker_client import DryRunResultDocument, JobDocument

    as_json = broker_options.as_json
    with broker_options.connect() as broker:
        path = f"/api/v1/dlq/{kind}"
        matches = broker.post(path, DryRunResultDocument, selection | {"dryRun": True})
        if not matches["total"] and isinstance(queue := selection.get("queue"), str):
            require_queue(broker, queue)
        if job_options.dry_run:
            print_json(matches) if as_json else print(describe_dry_run(kind, matches))
            raise typer.Exit(0)
        if not (job_options.yes or as_json):
            print(describe_dry_run(kind, matches))
            if not matches["total"] or not typer.confirm("Continue?"):
                raise typer.Exit(0 if not matches["total"] else 1)
        job = broker.post(path, JobDocument, selection | job_options.to_json())
        if not job_options.detach:
            job = _wait_for_job(broker, job, quiet=as_json)
    _print_job(job, as_json)
    raise typer.Exit(0 if job_options.detach or job["state"] == "done" else 1)


def _print_job(job: JobDocument, as_json: bool) -> None:
    print_json(job) if as_json else print(describe_job(job))


def _wait_for_job(broker: BrokerClient, job: JobDocument, quiet: bool) -> JobDocument:
    """Show a progress bar until the job has finished. On Ctrl-C the job continues, and the output says so."""
    from penstock.cli.broker_client import JobDocument

    console = Console(stderr=True, highlight=False, quiet=quiet)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TaskProgressColumn())
    try:
        with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
            description = JOB_DESCRIPTIONS[job["kind"]]
            total = job["total"] if job["totalIsExact"] else None
            task = bar.add_task(description, total=total)
            while job["state"] not in FINISHED_JOB_STATES:
                time.sleep(JOB_POLL_INTERVAL_S)
                job = broker.get(f"/api/v1/jobs/{job['id']}", JobDocument)
                bar.update(task, completed=job["changed"], description=job["note"] or description)
    except KeyboardInterrupt:
        print(f"The job continues. Cancel it with `penstock dlq cancel {job['id']}`.")
        raise typer.Exit(1) from None
    return job
