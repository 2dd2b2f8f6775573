"""Every table at 80 columns: ids and names are on one line in full, so they can be copied into a command."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from penstock.cli import dlq_tables, queue_commands, tables
from penstock.cli.listing import Listing
from penstock.embedded.supervision.state import ComponentState, RunState
from penstock.pipeline.archive.rebuild import DayPlan

LONG_NAME = "invoices-of-the-european-region-with-a-long-name"
UUID = "93bd88ce-c720-c833-ef82-fb400eb26a2f"
TASK_ID = f"{UUID}-0"
LONG_TEXT = "timeout while calling payments.internal.example.com; " * 5
NO_ROWS: Any = {"groups": []}
TIME = "2026-11-16T12:41:34.659Z"

DEAD_LETTER: Any = {
    "letterId": TASK_ID,
    "kind": "durable",
    "queue": LONG_NAME,
    "consumerGroup": "billing-service-europe",
    "partition": "customer-1234567",
    "offset": 7,
    "transactionId": "01a1e460-8a8e-7458-9ef2-a3a0c0c644f9",
    "firstTransactionId": "01a1e460-8a8e-7458-9ef2-a3a0c0c644f8",
    "traceId": "0af7651916cd43dd8448eb211c80319c",
    "firstEnqueuedAt": TIME,
    "failedAt": TIME,
    "timesDead": 2,
    "retryCount": 3,
    "totalAttempts": 6,
    "errorMessage": LONG_TEXT,
    "errorGroup": UUID,
    "data": {},
}
PAGE: Any = {"messages": [DEAD_LETTER], "nextCursor": None, "total": 1, "totalIsExact": True}
JOB: Any = {
    "id": UUID,
    "kind": "requeue",
    "subject": "dead_letters",
    "state": "running",
    "changed": 1_234_567,
    "skipped": 12,
    "total": 9_999_999,
    "totalIsExact": False,
    "createdAt": TIME,
    "note": LONG_TEXT,
}
GROUPS: Any = {
    "groups": [
        {
            "error": LONG_TEXT,
            "errorGroup": UUID,
            "deadLetters": 812,
            "queues": [LONG_NAME, "orders"],
            "firstFailedAt": TIME,
            "lastFailedAt": TIME,
            "trend": [1] * 24,
            "state": "back_again",
            "owner": "ada",
        }
    ],
    "pagination": {"total": 1},
}
COUNTS: Any = {
    "groups": [
        {
            "queue": LONG_NAME,
            "kind": "durable",
            "consumerGroup": "__QUEUE_MODE__",
            "deadLetters": 812,
            "oldestFailedAt": TIME,
        }
    ],
    "missing": None,
}
DURABLE_QUEUES: Any = [
    {"name": LONG_NAME, "depth": 1_000_000, "running": 99_999, "partitions": 123_456, "paused": True}
]
RUN_QUEUES: Any = [
    {
        "name": f"run-{LONG_NAME}",
        "depth": 1_000_000,
        "running": 99_999,
        "delayed": 12_345,
        "dead": 1_234,
        "paused": True,
        "concurrency": 1_000_000,
        "oldestAgeMs": 1e9,
    }
]
COMPONENTS = (
    ComponentState("postgres", RunState.UP, "postgresql://me:***@db.internal.example.com:5432/penstock"),
    ComponentState("broker", RunState.DOWN, "http://127.0.0.1:7480", pid=1_234_567),
)
DAY = DayPlan(
    "queue_with_a_long_name", "2026-11-16", 99_999_999, 99_999_999, 99_999, ["q_5s", "q_1m", "q_1h"]
)


def render(renderable: RenderableType, width: int) -> str:
    output = io.StringIO()
    Console(file=output, width=width, highlight=False).print(renderable, crop=False)
    return output.getvalue()


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    ("renderable", "ids"),
    [
        (
            dlq_tables.dead_letter_list([DEAD_LETTER], PAGE),
            [TASK_ID, LONG_NAME, "billing-service-europe", "customer-1234567"],
        ),
        (
            dlq_tables.dead_letter_details(DEAD_LETTER),
            [TASK_ID, LONG_NAME, UUID, DEAD_LETTER["transactionId"], DEAD_LETTER["firstTransactionId"]],
        ),
        (dlq_tables.error_group_list(GROUPS), [UUID, LONG_NAME]),
        (dlq_tables.job_list([JOB]), [UUID]),
        (dlq_tables.dead_letter_counts(COUNTS), [LONG_NAME, "queue mode"]),
        (
            queue_commands.queue_list(DURABLE_QUEUES, RUN_QUEUES, 2, None),
            [LONG_NAME, f"run-{LONG_NAME}"],
        ),
        (tables.rebuild_list([DAY], dry_run=False), ["queue_with_a_long_name", "2026-11-16"]),
        (tables.component_list(COMPONENTS), ["postgres", COMPONENTS[0].address]),
    ],
    ids=["dead letters", "details", "error groups", "jobs", "counts", "queues", "rebuild", "components"],
)
def test_ids_and_names_are_on_one_line_in_full(
    renderable: RenderableType, ids: list[str], width: int
) -> None:
    lines = render(renderable, width).splitlines()
    for identifier in ids:
        assert any(identifier in line for line in lines), f"{identifier} is broken in {lines}"
    assert max(cell_len(line.rstrip()) for line in lines) <= width
    assert "__QUEUE_MODE__" not in "".join(lines)


def test_rows_that_fit_are_a_table_and_others_are_blocks() -> None:
    listing = Listing("Id", "Error", folding=("Error",))
    listing.add_row(UUID, LONG_TEXT)
    table, blocks = render(listing, 80), render(listing, 45)
    assert table.startswith("Id ")
    assert blocks.splitlines()[0] == UUID
    assert blocks.splitlines()[1].startswith("  Error  timeout")


def test_an_id_that_is_longer_than_the_console_has_no_line_break() -> None:
    listing = Listing("Id", "State")
    listing.add_row("x" * 255, "dead")
    assert "x" * 255 in render(listing, 80)


@pytest.mark.parametrize(
    "renderable",
    [
        dlq_tables.dead_letter_list([], PAGE),
        dlq_tables.error_group_list(GROUPS | NO_ROWS),
        dlq_tables.job_list([]),
        dlq_tables.dead_letter_counts(COUNTS | NO_ROWS),
        dlq_tables.dead_letter_counts(COUNTS | NO_ROWS | {"missing": "Redis is away."}),
        queue_commands.queue_list([], [], 0, None),
        queue_commands.queue_list([], [], 0, "nope"),
        tables.loss_list([]),
    ],
)
def test_an_empty_list_is_a_sentence_without_a_frame(renderable: RenderableType) -> None:
    text = render(renderable, 200)
    assert "─" not in text
    assert text.rstrip().endswith(".")


def test_losses_are_listed_with_their_reason_within_80_columns() -> None:
    times = {"first": "2026-01-31T08:00:00.000Z", "last": "2026-01-31T09:00:00.000Z"}
    text = render(
        tables.loss_list([{"metric": "queue", "reason": "not_a_number", "events": 1234, **times}]), 80
    )
    assert "queue   not_a_number  1,234   2026-01-31 08:00:00  2026-01-31 09:00:00" in text
