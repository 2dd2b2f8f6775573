from __future__ import annotations

import asyncio

import httpx


async def test_batching_counts_requests_items_and_batches(client: httpx.AsyncClient) -> None:
    body = {"items": [{"queue": "q", "payload": n} for n in range(3)]}
    await asyncio.gather(*(client.post("/api/v1/push", json=body) for _ in range(10)))
    answer = (await client.get("/api/v1/analytics/batching")).json()
    push = answer["operations"]["push"]
    assert (push["requests"], push["items"]) == (10, 30)
    assert 1 <= push["batches"] <= 10
    assert push["averageBatchItems"] == round(30 / push["batches"], 2)
    assert push["averageMs"] > 0
    assert answer["connections"]["open"] >= 1
    assert answer["operations"]["pop"]["requests"] == 0
