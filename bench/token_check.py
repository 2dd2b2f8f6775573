"""Measure what checking a token costs the broker: CPU time of single pushes with a token and without.

Both kinds go to the same broker and take turns of a fraction of a second, so that other load on the machine
meets them alike. Pushes without a token take part twice: the difference between those two is the error.
"""

from __future__ import annotations

import timeit

from bench import http_load
from bench.cpu_turns import TurnKind, measure_in_turns, push_requests
from bench.servers import RunningBroker
from penstock.access.token_index import TokenIndex
from penstock.access.token_service import AccessTokens, NewToken
from penstock.caller import LOCAL_CALLER
from penstock.durable.pool import Database

CONNECTIONS = 50
LOOKUPS = 20_000
TOKEN, NONE, NONE_AGAIN = "token", "none", "none again"
KINDS = (NONE, TOKEN, NONE_AGAIN)


async def measure_token_check(broker: RunningBroker, turns: int) -> dict[str, float]:
    """Return the microseconds of the broker's CPU per push of each kind, and the ratios of their sums."""
    secret = await _create_token(broker.database_url)
    lookup_us = await _measure_lookup(broker.database_url, secret)
    connections = await http_load.connect(broker.port, CONNECTIONS)
    with_token = f"authorization: Bearer {secret}\r\n"
    kinds = {
        kind: TurnKind(
            connections, broker.processes, push_requests("token-check", with_token if kind == TOKEN else "")
        )
        for kind in KINDS
    }
    push_us = await measure_in_turns(kinds, turns)
    for connection in connections:
        connection.close()
    none_us = (push_us[NONE] + push_us[NONE_AGAIN]) / 2
    return {
        "push_us_token": round(push_us[TOKEN], 2),
        "push_us_none": round(none_us, 2),
        "lookup_us": round(lookup_us, 2),
        "check_us": round(push_us[TOKEN] - none_us, 2),
        "token_vs_none_push": round(push_us[TOKEN] / none_us, 4),
        "none_vs_none_push": round(push_us[NONE_AGAIN] / push_us[NONE], 4),
    }


async def _create_token(database_url: str) -> str:
    database = Database(database_url, 1)
    try:
        token = NewToken(name="bench", scopes=["produce"])
        return (await AccessTokens(database).create(LOCAL_CALLER, token)).secret
    finally:
        await database.close()


async def _measure_lookup(database_url: str, secret: str) -> float:
    """Return the microseconds of finding a caller by its secret: once per new head, and on other routes."""
    index = TokenIndex(database_url)
    await index.refresh()
    timings_s = timeit.repeat(lambda: index.find(secret), number=LOOKUPS, repeat=5)
    await index.stop()
    return min(timings_s) * 1e6 / LOOKUPS
