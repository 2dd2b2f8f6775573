"""Error groups of dead letters: list them with their states, and change state, owner and note."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from penstock.durable.pool import Session
from penstock.model import Scope

ERROR_GROUP_STATES = ("back_again", "new", "open", "ignored", "resolved")
"""The most urgent first. An operator sets the last three; the first two follow from what happens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorGroupStatus:
    """The state of an error group now, and what operators recorded about it.

    `set_state` is the state that an operator set last; it differs if the group is back again.
    """

    state: str = "new"
    set_state: str = "new"
    state_since: datetime | None = None
    ignored_until: datetime | None = None
    ignored_count: int | None = None
    ignored_rate: int | None = None
    owner: str | None = None
    note: str | None = None
    changed_at: datetime | None = None
    changed_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorGroupChange:
    """A change of an error group by an operator. `state` None keeps the state, with its conditions.

    An ignored group is back again at `ignored_until`, after `ignored_count` more dead letters, or after more
    than `ignored_rate` in one clock hour, whichever is first; without any of them it stays ignored.
    """

    state: str | None = None
    ignored_until: datetime | None = None
    ignored_count: int | None = None
    ignored_rate: int | None = None
    sets_owner: bool = False
    owner: str | None = None
    sets_note: bool = False
    note: str | None = None
    changed_by: str = "local"


class DeadTaskExample(NamedTuple):
    """An error of an error group of a run queue, and when the first of its tasks died."""

    error: str
    died_at: datetime


class DeadLetterErrorGroup(NamedTuple):
    """A row of `dead_letter_error_groups_v1`: the dead letters with the same error pattern."""

    error_key: uuid.UUID
    pattern: str | None
    messages: int
    queues: list[str] | None
    groups: list[str | None] | None
    first_at: datetime | None
    last_at: datetime | None
    hours: list[int]
    example: str | None
    total: int
    status: ErrorGroupStatus


class ErrorGroupStore:
    """Reads and changes error groups."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list_error_groups(
        self,
        scope: Scope,
        *,
        queue: str | None = None,
        group: str | None = None,
        states: Sequence[str] | None = None,
        error_key: uuid.UUID | None = None,
        hours: int = 24,
        limit: int,
        offset: int,
        now: datetime | None = None,
    ) -> list[DeadLetterErrorGroup]:
        """Return dead letters of durable queues grouped by error pattern, the most frequent first.

        With `error_key`, that group only; it is returned as long as it is recorded, also without dead
        letters.
        """
        rows = await self._session.fetch(
            "SELECT * FROM dead_letter_error_groups_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
            *scope,
            queue,
            group,
            states,
            error_key,
            hours,
            limit,
            offset,
            now,
        )
        return [
            DeadLetterErrorGroup(
                **{name: row[name] for name in DeadLetterErrorGroup._fields if name != "status"},
                status=_status(row["state"], row["record"]),
            )
            for row in rows
        ]

    async def list_task_states(
        self,
        scope: Scope,
        queue: str,
        deaths: Sequence[tuple[uuid.UUID, datetime]],
        now: datetime | None = None,
    ) -> dict[uuid.UUID, ErrorGroupStatus]:
        """Return the states of the recorded error groups of a run queue.

        `deaths` has the error group and the time of death of its dead tasks.
        """
        rows = await self._session.fetch(
            "SELECT * FROM task_error_groups_v1($1, $2, $3, $4, $5, $6, $7)",
            *scope,
            queue,
            [key for key, _ in deaths],
            [died_at for _, died_at in deaths],
            now,
        )
        return {row["record"]["error_key"]: _status(row["current_state"], row["record"]) for row in rows}

    async def change(
        self,
        scope: Scope,
        error_key: uuid.UUID,
        queue: str | None,
        change: ErrorGroupChange,
        *,
        task_example: DeadTaskExample | None = None,
        now: datetime | None = None,
    ) -> list[str]:
        """Change an error group in one queue or in all; return its queues, none if it is unknown.

        `task_example` makes a group of the run queue `queue` known.
        """
        task_error, task_died_at = task_example or (None, None)
        rows = await self._session.fetch(
            "SELECT * FROM change_error_group_v1"
            "($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)",
            *scope,
            error_key,
            queue,
            change.state,
            change.ignored_until,
            change.ignored_count,
            change.ignored_rate,
            change.sets_owner,
            change.owner,
            change.sets_note,
            change.note,
            change.changed_by,
            task_error,
            task_died_at,
            now,
        )
        return sorted(row["queue"] for row in rows)


def _status(state: str, record: Any) -> ErrorGroupStatus:
    """Return the status of a row of `error_groups`; a group without one is new."""
    if record is None:
        return ErrorGroupStatus(state=state)
    names = (
        "state_since",
        "ignored_until",
        "ignored_count",
        "ignored_rate",
        "owner",
        "note",
        "changed_at",
        "changed_by",
    )
    return ErrorGroupStatus(state=state, set_state=record["state"], **{name: record[name] for name in names})
