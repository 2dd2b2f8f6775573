"""Requests that a web page of another site makes a browser send, with and without the fast path."""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import FastAPI

from penstock.api.app import create_app
from penstock.config import Settings
from penstock.errors import ConfigError
from tests.integration.api import shared_app
from tests.integration.api.calls import assert_problem, pop_payloads, push
from tests.integration.api.http.raw_connections import (
    HOST,
    JSON,
    RawConnection,
    RunningServer,
    get,
    post,
    push_body,
)

app, server = shared_app.app, shared_app.server

CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/130.0.0.0 Safari/537.36"
CROSS_SITE = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": "http://evil.example"},
    {"Origin": "http://localhost:3000"},
    {"Origin": "null"},
    {"User-Agent": CHROME},
    {"User-Agent": CHROME, "Referer": "http://evil.example/localhost"},
]
SAME_SITE: list[dict[str, str]] = [
    {},
    {"Sec-Fetch-Site": "same-origin", "Origin": "https://queues.example", "User-Agent": CHROME},
    {"Sec-Fetch-Site": "none", "User-Agent": CHROME},
    {"Origin": "http://localhost"},
    {"Origin": "https://localhost"},
    {"User-Agent": CHROME, "Referer": "http://localhost/docs"},
    {"User-Agent": "Mozilla/5.0 (Windows NT 10.0; en-US) PowerShell/7.4.0"},
]


async def test_a_page_of_another_site_cannot_use_any_route_that_changes_something(
    app: FastAPI, client: httpx.AsyncClient
) -> None:
    for path, operations in app.openapi()["paths"].items():
        for method in operations:
            if method == "get" and not path.startswith("/api/v1/pop"):
                continue
            for headers in CROSS_SITE:
                response = await client.request(method, re.sub(r"{\w+}", "1", path), headers=headers)
                assert_problem(response, 403, "cross_origin")


@pytest.mark.parametrize("headers", CROSS_SITE)
async def test_a_page_of_another_site_cannot_push_or_pop(
    server: RunningServer, headers: dict[str, str]
) -> None:
    lines = [f"{name}: {value}" for name, value in headers.items()]
    connection = await RawConnection.open(server)
    for request in (post("/api/v1/push", push_body("q", 1), *lines), get("/api/v1/pop/queue/q", *lines)):
        for _ in range(2):  # the second one could be found in the cache of heads
            connection.send(request)
            status, _, problem = await connection.read_response()
            assert (status, problem["code"]) == (403, "cross_origin")
    connection.send(get("/api/v1/pop/queue/q"))
    assert (await connection.read_response())[0] == 204, "nothing was pushed"


@pytest.mark.parametrize("headers", SAME_SITE)
async def test_programs_and_own_pages_push_and_pop(
    client: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    client.headers.update(headers)
    await push(client, 1, queue="pages")
    assert await pop_payloads(client, "pages", autoAck="true") == [1]


async def test_a_link_on_another_site_opens_the_console(client: httpx.AsyncClient) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "User-Agent": CHROME}
    assert (await client.get("/", headers=headers)).status_code == 200


SERVED = [
    *(
        "localhost",
        "localhost:7480",
        "LOCALHOST.",
        "my-app.localhost",
        "127.0.0.1:7480",
        "[::1]:7480",
        "[::1]",
    ),
    *("10.1.2.3", "203.0.113.9:80", socket.gethostname(), f"{socket.gethostname()}:7480"),
]
NOT_SERVED = [
    "evil.example",
    "evil.example:7480",
    "localhost.evil.example",
    "127.0.0.1.nip.io",
    "notlocalhost",
    "[x]",
]


@pytest.mark.parametrize("host", SERVED)
async def test_names_of_the_machine_and_addresses_are_served(client: httpx.AsyncClient, host: str) -> None:
    assert (await client.get("/api/v1/resources/namespaces", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize("host", NOT_SERVED)
async def test_other_names_are_refused_on_every_route(client: httpx.AsyncClient, host: str) -> None:
    pages = ("/", "/docs", "/openapi.json", "/static/index.html", "/static-offline-docs/swagger-ui.css")
    for path in (*pages, "/metrics", "/health", "/auth/login", "/dlq-status", "/api/v1/pop/queue/q"):
        response = await client.get(path, headers={"Host": host})
        assert "PENSTOCK_ALLOWED_HOSTS" in assert_problem(response, 421, "unknown_host")


async def test_another_name_is_refused_on_the_fast_path(server: RunningServer) -> None:
    connection = await RawConnection.open(server)
    requests = (post("/api/v1/push", push_body("q", 1)), get("/api/v1/pop/queue/q"), get("/dlq-status"))
    for request in requests:
        connection.send(request.replace(HOST.encode(), b"Host: evil.example"))
        status, _, problem = await connection.read_response()
        assert (status, problem["code"]) == (421, "unknown_host")
    connection.send(get("/api/v1/pop/queue/q"))
    assert (await connection.read_response())[0] == 204, "the connection is usable and nothing was pushed"


@asynccontextmanager
async def open_client(settings: Settings, **changes: str) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(settings.model_copy(update=changes))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client,
    ):
        yield client


@pytest.mark.parametrize(
    ("changes", "served", "refused"),
    [
        (
            {"allowed_hosts": "queues, *.Svc.Cluster.Local"},
            ["queues:80", "a.b.svc.cluster.local"],
            ["svc.cluster.local"],
        ),
        ({"host": "broker.example"}, ["broker.example:7480"], ["example"]),
        ({"allowed_hosts": "*", "host": "0.0.0.0"}, ["anything.example"], []),
        ({"host": "0.0.0.0"}, ["10.0.0.7", "localhost"], ["queues"]),
    ],
)
async def test_listed_names_and_the_bind_address_are_served(
    settings: Settings, changes: dict[str, str], served: list[str], refused: list[str]
) -> None:
    async with open_client(settings, **changes) as client:
        for host in [*served, *refused]:
            response = await client.get("/api/v1/resources/namespaces", headers={"Host": host})
            assert response.status_code == (200 if host in served else 421), host


@pytest.mark.parametrize("hosts", ["http://queues", "queues:7480", "que*es", "*.", "a,,b/"])
def test_an_invalid_list_of_names_is_reported(settings: Settings, hosts: str) -> None:
    with pytest.raises(ConfigError, match="PENSTOCK_ALLOWED_HOSTS"):
        create_app(settings.model_copy(update={"allowed_hosts": hosts}))


@pytest.mark.parametrize(
    "content_type", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x", ""]
)
async def test_a_body_must_be_declared_as_json(
    server: RunningServer, client: httpx.AsyncClient, content_type: str
) -> None:
    line = f"Content-Type: {content_type}" if content_type else "X: y"
    connection = await RawConnection.open(server)
    for path in ("/api/v1/push", "/api/v1/configure", "/api/v1/run-queues/r/tasks"):
        connection.send(post(path, push_body("q", 1)).replace(JSON.encode(), line.encode()))
        status, _, problem = await connection.read_response()
        assert (status, problem["code"]) == (415, "unsupported_media_type")
        assert "-H 'Content-Type: application/json'" in problem["detail"]
    connection.send(get("/api/v1/pop/queue/q"))
    assert (await connection.read_response())[0] == 204, "the connection is usable and nothing was pushed"


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON"])
async def test_parameters_and_case_of_the_content_type_do_not_matter(
    client: httpx.AsyncClient, content_type: str
) -> None:
    client.headers["content-type"] = content_type
    await push(client, 1, queue="declared")


async def test_a_request_without_a_body_needs_no_content_type(client: httpx.AsyncClient) -> None:
    del client.headers["content-type"]
    assert (await client.post("/api/v1/stats/refresh")).status_code == 200
