"""The routes for traces."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from tests.integration.api.calls import app_services, assert_problem, configure, get, push


async def record_trace(
    client: httpx.AsyncClient, result: dict[str, Any], data: Any, **fields: Any
) -> httpx.Response:
    ids = {"transactionId": result["transaction_id"], "partitionId": result["partition_id"]}
    return await client.post("/api/v1/traces", json={**ids, "data": data, **fields})


async def test_a_trace_is_found_by_message_and_by_name(client: httpx.AsyncClient) -> None:
    [result] = await push(client, 1)
    response = await record_trace(
        client, result, {"step": 1}, traceNames=["flow", "order 7"], eventType="started"
    )
    assert response.status_code == 201
    assert response.json()["success"] is True
    await record_trace(client, result, {"step": 2}, traceNames="flow", consumerGroup="g")
    body = await get(client, f"/traces/{result['partition_id']}/{result['transaction_id']}")
    assert [t["data"] for t in body["traces"]] == [{"step": 1}, {"step": 2}]
    assert body["traces"][0]["trace_names"] == ["flow", "order 7"]
    assert [t["event_type"] for t in body["traces"]] == ["started", "info"]
    body = await get(client, "/traces/by-name/flow")
    assert [(t["data"]["step"], t["consumer_group"]) for t in body["traces"]] == [
        (2, "g"),
        (1, "__QUEUE_MODE__"),
    ]
    assert (body["traces"][0]["queue_name"], body["more"]) == ("q", False)
    assert (await get(client, "/traces/by-name/flow", limit=1))["more"] is True
    assert (await get(client, "/traces/by-name/flow", to="2001-01-01"))["traces"] == []
    names = (await get(client, "/traces/names"))["trace_names"]
    assert [(n["trace_name"], n["trace_count"]) for n in names] == [("flow", 2), ("order 7", 1)]
    assert [n["trace_name"] for n in (await get(client, "/traces/names", search="ord"))["trace_names"]] == [
        "order 7"
    ]


async def test_traces_of_an_encrypted_queue_are_encrypted(client: httpx.AsyncClient, app: FastAPI) -> None:
    await configure(client, encryptionEnabled=True)
    [result] = await push(client, 1)
    await record_trace(client, result, "secret", traceNames=["n"])
    [row] = await app_services(app).broker.database.fetch("SELECT data FROM traces")
    assert b"secret" not in row["data"]
    assert (await get(client, "/traces/by-name/n"))["traces"][0]["data"] == "secret"


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"partitionId": "x"}, 422, "invalid_request"),
        ({"partitionId": "99999999"}, 404, "unknown_partition"),
        ({"partitionId": "9" * 30}, 422, "invalid_request"),
        ({"transactionId": ""}, 422, "invalid_request"),
        ({"traceNames": ["n"] * 21}, 422, "invalid_request"),
        ({"traceNames": [""]}, 422, "invalid_request"),
        ({"traceNames": [1]}, 422, "invalid_request"),
        ({"data": "x" * 70_000}, 413, "payload_too_large"),
        ({"eventType": "a\u0000"}, 422, "invalid_request"),
    ],
)
async def test_an_invalid_trace_is_refused(
    client: httpx.AsyncClient, change: dict[str, Any], status: int, code: str
) -> None:
    [result] = await push(client, 1)
    ids = {"transactionId": result["transaction_id"], "partitionId": result["partition_id"], "data": 1}
    assert_problem(await client.post("/api/v1/traces", json={**ids, **change}), status, code)


async def test_a_trace_requires_data_which_may_be_null(client: httpx.AsyncClient) -> None:
    [result] = await push(client, 1)
    ids = {"transactionId": result["transaction_id"], "partitionId": result["partition_id"]}
    assert "data" in assert_problem(await client.post("/api/v1/traces", json=ids), 422, "invalid_request")
    assert (await record_trace(client, result, None)).status_code == 201
    assert_problem(await client.get("/api/v1/traces/99999999/t"), 404, "unknown_partition")
