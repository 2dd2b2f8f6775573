"""Find out whether a name on the command line is a durable queue or a run queue."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from penstock.errors import InvalidRequest, PenstockError, UnknownQueue

if TYPE_CHECKING:
    from penstock.cli.broker_client import BrokerClient, QueueDocument


class QueueKind(StrEnum):
    """The two kinds of queues."""

    DURABLE = "durable"
    RUN = "run"


KindOption = Annotated[
    QueueKind | None, typer.Option("--kind", help="Kind of the queue, if both kinds have one of this name.")
]
COLLECTIONS = {QueueKind.DURABLE: "resources/queues", QueueKind.RUN: "run-queues"}


class ExistingQueue(NamedTuple):
    """A queue of the broker: its kind, the path of its routes and its state."""

    kind: QueueKind
    path: str
    state: QueueDocument


def find_queue(broker: BrokerClient, queue: str, kind: QueueKind | None) -> ExistingQueue:
    """Return the queue of that name, of this kind or of either.

    Raises UnknownQueue, and InvalidRequest if the kind is needed to choose between two queues.
    """
    from penstock.cli.broker_client import QueueDocument, queue_path

    queues: list[ExistingQueue] = []
    unknown: UnknownQueue | None = None
    for possible_kind in [kind] if kind else QueueKind:
        path = queue_path(queue, COLLECTIONS[possible_kind])
        try:
            queues.append(ExistingQueue(possible_kind, path, broker.get(path, QueueDocument)))
        except UnknownQueue as error:
            unknown = unknown or error
    if not queues and unknown is not None:
        raise unknown
    if len(queues) > 1:
        raise InvalidRequest(
            f"{queue!r} is the name of a durable queue and of a run queue. Add --kind durable or --kind run."
        )
    return queues[0]


def require_queue(broker: BrokerClient, queue: str) -> None:
    """Raise UnknownQueue unless a durable queue or a run queue has this name."""
    try:
        find_queue(broker, queue, QueueKind.DURABLE)
    except UnknownQueue as unknown:
        try:
            find_queue(broker, queue, QueueKind.RUN)
        except PenstockError:
            raise unknown from None  # without Redis too: its run queues cannot be used then
