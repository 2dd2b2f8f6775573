"""`penstock ack`: finish popped messages and tasks, or report that they failed."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.text import Text

from penstock.cli.exit_codes import ExitCode
from penstock.cli.options import BrokerOptions, with_option_groups
from penstock.cli.receipts import MessageReceipt, TaskReceipt, parse_receipt
from penstock.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.cli.broker_client import BrokerClient, JsonObject

STANDARD_INPUT = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class AckOptions:
    """How the messages ended. Without an option they are completed."""

    failed: Annotated[
        bool, typer.Option("--failed", help="The attempt failed: retried, or dead after the last retry.")
    ] = False
    dead: Annotated[bool, typer.Option("--dead", help="Give up now: it becomes a dead letter.")] = False
    release: Annotated[
        bool, typer.Option("--release", help="Give it back untouched; the attempt does not count.")
    ] = False
    error: Annotated[str | None, typer.Option(help="Why it failed, with --failed or --dead.")] = None

    def check(self) -> None:
        """Raise InvalidRequest if two options contradict each other."""
        if self.failed + self.dead + self.release > 1:
            raise InvalidRequest("Use one of --failed, --dead and --release.")
        if self.error is not None and not (self.failed or self.dead):
            raise InvalidRequest("--error needs --failed or --dead: completed messages have no error.")

    @property
    def outcome(self) -> str:
        outcomes = {"reported as failed": self.failed, "given up": self.dead, "given back": self.release}
        return next((text for text, is_set in outcomes.items() if is_set), "acked as completed")

    def to_message_ack(self, receipt: MessageReceipt) -> JsonObject:
        statuses = {"failed": self.failed, "dlq": self.dead, "retry": self.release}
        status = next((name for name, is_set in statuses.items() if is_set), "completed")
        return receipt.to_json() | {"status": status, "error": self.error}

    def to_task_ack(self, receipt: TaskReceipt) -> tuple[str, JsonObject]:
        """Return the name of the route and the item for it."""
        if self.failed or self.dead:
            return "nack", receipt.to_json() | {"error": self.error, "retry": not self.dead}
        return "give-back" if self.release else "ack", receipt.to_json()


@with_option_groups
def ack(
    *,
    receipts: Annotated[
        list[str],
        typer.Argument(help="Receipts that `penstock pop` shows; - reads them from standard input."),
    ],
    ack_options: AckOptions,
    broker_options: BrokerOptions,
) -> None:
    """Ack popped messages and tasks by their receipts. Exit code 1 if one was refused; the others count."""
    ack_options.check()
    if STANDARD_INPUT in receipts:
        receipts = [receipt for receipt in receipts if receipt != STANDARD_INPUT]
        receipts += [line.strip() for line in sys.stdin if line.strip()]
    with broker_options.connect() as broker:
        results = ack_receipts(broker, receipts, ack_options)
    refused = [result for result in results if not result["success"]]
    text = Text(f"{len(results) - len(refused):,} {ack_options.outcome}.")
    for result in refused:
        text.append(f"\n{result['receipt']}: {result['error']}", style="red")
    broker_options.print({"results": results}, text)
    if refused:
        raise typer.Exit(ExitCode.NEGATIVE)


def ack_receipts(
    broker: BrokerClient, receipts: list[str], ack_options: AckOptions | None = None
) -> list[JsonObject]:
    """Ack all receipts and return one result each, in order."""
    options = ack_options or AckOptions()
    parsed = [parse_receipt(receipt) for receipt in receipts]
    messages = [options.to_message_ack(receipt) for receipt in parsed if isinstance(receipt, MessageReceipt)]
    tasks = [options.to_task_ack(receipt) for receipt in parsed if isinstance(receipt, TaskReceipt)]
    message_results = iter(
        broker.post_list("/api/v1/ack/batch", {"acknowledgments": messages}) if messages else []
    )
    task_results = iter(
        broker.post(f"/api/v1/tasks/{tasks[0][0]}", dict, {"tasks": [item for _, item in tasks]})["results"]
        if tasks
        else []
    )
    return [
        {
            "receipt": text,
            **_outcome(next(message_results if isinstance(receipt, MessageReceipt) else task_results)),
        }
        for text, receipt in zip(receipts, parsed, strict=True)
    ]


def _outcome(result: JsonObject) -> JsonObject:
    return {
        "success": result["success"],
        "error": cast("str | None", result.get("error")),
        "isDead": bool(result.get("dlq")) or result.get("state") == "dead",
    }
