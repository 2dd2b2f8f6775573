"""Find what keeps PostgreSQL from removing dead rows: the holders of the vacuum horizon.

A queue on PostgreSQL changes a few small tables all the time. An open transaction keeps every dead row since
its start, and each push, pop and ack gets slower until the transaction ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.durable.pool import Session

ADVICE = {
    "idle in transaction": (
        "it began a transaction and does nothing: commit or roll back in {client_name}, or end it with "
        "SELECT pg_terminate_backend({pid}); idle_in_transaction_session_timeout ends such sessions by itself"
    ),
    "transaction": (
        "its statement or transaction has not ended: use shorter ones in {client_name}, or end it with "
        "SELECT pg_terminate_backend({pid})"
    ),
    "prepared transaction": (
        "it was prepared and never finished: COMMIT PREPARED '{name}' or ROLLBACK PREPARED '{name}'"
    ),
    "replication slot": (
        "its consumer has not confirmed for long: restart the consumer, or drop the slot with "
        "SELECT pg_drop_replication_slot('{name}') if it is not needed any more"
    ),
    "standby": (
        "a query on the standby {client_name} at {client} holds it through hot_standby_feedback: end it there"
    ),
}


@dataclass(frozen=True, slots=True)
class HorizonHolder:
    """What holds the vacuum horizon, since when, and what to do about it.

    `name` is the process id of a session or standby, the name of a slot, or the id of a prepared transaction.
    `xmin_age` is the number of transactions since then.
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
    def summary(self) -> str:
        """One line for a log or a status page."""
        subject = f"session {self.name}" if self.kind == "idle in transaction" else f"{self.kind} {self.name}"
        user = f" of {self.user}" if self.user else ""
        application = f" ({self.application})" if self.application else ""
        holder = f"{subject}{user}{application}"
        duration = _format_duration(self.age_s)
        return f"{holder} has kept dead rows from being removed for {duration}: {self.advice}"


async def find_horizon_holders(
    session: Session, longer_than: timedelta = timedelta(minutes=10), now: datetime | None = None
) -> list[HorizonHolder]:
    """Return what has held the vacuum horizon of this database for longer than a time, the oldest first.

    Costs one scan of PostgreSQL's list of sessions. A user without pg_read_all_stats sees that other users'
    sessions hold the horizon, not what they do.
    """
    rows = await session.fetch("SELECT * FROM vacuum_horizon_holders_v1($1, $2)", longer_than, now)
    return [
        HorizonHolder(
            row["kind"],
            row["name"],
            row["pid"],
            row["username"],
            row["application"] or None,
            row["client"],
            row["held_since"],
            round(row["age_s"], 1),
            row["xmin_age"],
            ADVICE[row["kind"]].format(
                name=row["name"],
                pid=row["pid"],
                client_name=row["application"] or row["username"] or "its client",
                client=row["client"] or "its address",
            ),
        )
        for row in rows
    ]


def _format_duration(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"
