"""Read how many queues, partitions, messages and bytes environments store."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.durable.pool import Session, fetch_one, fetch_value
from penstock.model import Scope


@dataclass(frozen=True, slots=True)
class StoredObjects:
    """What an environment has in PostgreSQL. Messages count until retention drops them."""

    queues: int
    partitions: int
    messages: int


class EnvironmentUseReader:
    """Reads the use of environments. The cost follows queues and partitions, never messages."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def count_objects(self, scope: Scope) -> StoredObjects:
        row = await fetch_one(
            self._session, StoredObjects, "SELECT * FROM environment_objects_v1($1, $2, $3)", *scope
        )
        assert row is not None
        return row

    async def estimate_bytes(self, scope: Scope) -> int:
        """Return the bytes of the messages: counted in closed chunks, estimated in the others."""
        return await fetch_value(self._session, int, "SELECT environment_stored_bytes_v1($1, $2, $3)", *scope)
