"""Read what `penstock top` shows: the overview, the list of queues and the broker processes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from penstock.cli.exit_codes import BrokerRefusal

if TYPE_CHECKING:
    from penstock.cli.broker_client import BrokerClient

OVERVIEW_PATH = "/api/v1/console/overview"
QUEUES_PATH = "/api/v1/console/queues"
WORKERS_PATH = "/api/v1/status/workers"
ACCESS_STATUSES = (401, 403)


class TopSort(StrEnum):
    """Columns that sort the queues. The values are those of the broker's route."""

    NAME = "name"
    DEPTH = "depth"
    RATE_IN = "rateIn"
    RATE_OUT = "rateOut"
    WAIT = "wait"
    OLDEST = "oldest"
    DEAD = "dead"
    GROWTH = "growth"


@dataclass(frozen=True, slots=True)
class TopSelection:
    """Which queues are shown, and in which order."""

    search: str = ""
    sort: TopSort = TopSort.DEPTH
    is_reversed: bool = False
    only_problems: bool = False
    limit: int = 100

    def to_parameters(self) -> dict[str, str | int | None]:
        default_order = "asc" if self.sort == TopSort.NAME else "desc"
        reversed_order = "desc" if self.sort == TopSort.NAME else "asc"
        return {
            "search": self.search or None,
            "sort": self.sort.value,
            "order": reversed_order if self.is_reversed else default_order,
            "problem": "any" if self.only_problems else None,
            "pageSize": self.limit,
        }


@dataclass(frozen=True, slots=True)
class TopSnapshot:
    """The documents of one moment. `workers` is None if only platform administrators may see them."""

    overview: dict[str, Any]
    page: dict[str, Any]
    workers: list[dict[str, Any]] | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_snapshot(broker: BrokerClient, selection: TopSelection) -> TopSnapshot:
    """Read all documents. Raises PenstockError if the broker does not answer or refuses."""
    overview = broker.get(OVERVIEW_PATH, dict)
    page = broker.get(QUEUES_PATH, dict, **selection.to_parameters())
    return TopSnapshot(overview, page, _read_workers(broker))


def _read_workers(broker: BrokerClient) -> list[dict[str, Any]] | None:
    try:
        workers: list[dict[str, Any]] = broker.get(WORKERS_PATH, dict)["workers"]
    except BrokerRefusal as error:
        if error.http_status not in ACCESS_STATUSES:
            raise
        return None
    return workers
