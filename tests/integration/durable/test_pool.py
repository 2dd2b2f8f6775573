"""The connections of a broker: nobody opens what nobody would close."""

from __future__ import annotations

import pytest

from penstock.durable.pool import Database
from penstock.errors import DatabaseUnavailable


async def test_who_comes_after_the_connections_were_closed_is_refused(database_url: str) -> None:
    database = Database(database_url)
    await database.ping()
    await database.close()
    with pytest.raises(DatabaseUnavailable, match="stopping"):
        await database.ping()
    assert database.connections == (0, 0)
    await database.close()
