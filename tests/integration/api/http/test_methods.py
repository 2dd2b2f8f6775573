"""Methods of all routes: an unsupported one gets 405 with the supported methods, and changes nothing."""

from __future__ import annotations

import re

import httpx
import pytest
from fastapi import FastAPI

from tests.integration.api.calls import assert_problem, pop_payloads, push

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
PAGES = ("/", "/openapi.json", "/docs", "/static/index.html")


async def test_allow_lists_exactly_the_methods_of_every_route(
    app: FastAPI, client: httpx.AsyncClient
) -> None:
    paths = [re.sub(r"{\w+}", "1", path) for path in app.openapi()["paths"]]
    for path in (*paths, *PAGES):
        responses = {method: await client.request(method, path) for method in METHODS}
        supported = {method for method, response in responses.items() if response.status_code != 405}
        assert supported, path
        for method in responses.keys() - supported:
            allowed = responses[method].headers["allow"].split(", ")
            assert sorted(allowed) == sorted(supported), (method, path)


@pytest.mark.parametrize(
    "path", ["/api/v1/pop/queue/q", "/api/v1/pop/queue/q/partition/Default", "/api/v1/pop?namespace=orders"]
)
async def test_head_does_not_pop(client: httpx.AsyncClient, path: str) -> None:
    await push(client, 1)
    response = await client.head(path)
    assert response.status_code == 405
    assert response.headers["allow"] == "GET"
    assert await pop_payloads(client) == [1]


async def test_a_refused_method_is_explained(client: httpx.AsyncClient) -> None:
    detail = assert_problem(await client.put("/api/v1/push"), 405, "method_not_allowed")
    assert detail == "/api/v1/push does not support PUT. Use POST."
