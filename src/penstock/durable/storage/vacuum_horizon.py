"""Who keeps PostgreSQL from removing dead rows: the vacuum horizon, by name.

A queue on PostgreSQL changes a few small tables all the time. A transaction that is left open makes every
dead row since then stay, and each push, pop and ack slower, until somebody finds it. `horizon` finds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.durable.pool import Database

ADVICE = {
    "idle in transaction": "it began a transaction and does nothing: commit or roll back in {who}, or end it "
    "with SELECT pg_terminate_backend({pid}); idle_in_transaction_session_timeout does that by itself",
    "transaction": "its statement or transaction has not ended: let {who} use shorter ones, or end it with "
    "SELECT pg_terminate_backend({pid})",
    "prepared transaction": "it was prepared and never finished: COMMIT PREPARED '{name}' or "
    "ROLLBACK PREPARED '{name}'",
    "replication slot": "its consumer has not confirmed for long: bring it back, or drop the slot with "
    "SELECT pg_drop_replication_slot('{name}') if nobody needs it any more",
    "standby": "a query on the standby {who} at {client} holds it through hot_standby_feedback: end it there",
}


@dataclass(frozen=True, slots=True)
class Holder:
    """What holds the horizon: since when, how many transactions ago, and what to do about it.

    `name` is the process id of a session or standby, the name of a slot, the id of a prepared transaction.
    """

    kind: str
    name: str
    pid: int | None
    user: str | None
    application: str | None
    client: str | None
    held_since: datetime
    age_s: float
    xmin_age: int
    advice: str

    @property
    def sentence(self) -> str:
        """One line for a log or a status page."""
        what = f"{self.kind} {self.name}" if self.kind != "idle in transaction" else f"session {self.name}"
        by = f" of {self.user}" if self.user else ""
        through = f" ({self.application})" if self.application else ""
        long = _spoken(self.age_s)
        return f"{what}{by}{through} has kept dead rows from being removed for {long}: {self.advice}"


async def horizon(
    database: Database, longer_than: timedelta = timedelta(minutes=10), now: datetime | None = None
) -> list[Holder]:
    """Whoever has held the vacuum horizon of this database for longer, the oldest first; empty: all is well.

    Costs one look at PostgreSQL's list of sessions. A user who may not see other users' sessions sees that
    they hold it, not what they do.
    """
    rows = await database.fetch(
        "SELECT *, clock_timestamp() AS now FROM vacuum_horizon_v1($1, $2)", longer_than, now
    )
    return [
        Holder(
            row["kind"],
            row["name"],
            row["pid"],
            row["username"],
            row["application"] or None,
            row["client"],
            row["held_since"],
            round(((now or row["now"]) - row["held_since"]).total_seconds(), 1),
            row["xmin_age"],
            ADVICE[row["kind"]].format(
                name=row["name"],
                pid=row["pid"],
                who=row["application"] or row["username"] or "its client",
                client=row["client"] or "its address",
            ),
        )
        for row in rows
    ]


def _spoken(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"
