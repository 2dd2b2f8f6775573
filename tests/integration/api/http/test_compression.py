"""Compressed responses: files of the console and JSON, for clients that accept gzip."""

from __future__ import annotations

import gzip
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from penstock.api.console_files import ConsoleFiles
from penstock.api.http.compression import MAX_INLINE_BYTES, MIN_BYTES, CompressionMiddleware
from penstock.console import STATIC
from tests.integration.api import shared_app
from tests.integration.api.calls import push

app = shared_app.app

GZIP = {"Accept-Encoding": "br, gzip;q=0.8"}
FILE = "/static/vendor/uplot-1.6.32/uPlot.esm.js"


async def raw_body(
    client: httpx.AsyncClient, path: str, headers: dict[str, str]
) -> tuple[httpx.Response, bytes]:
    async with client.stream("GET", path, headers=headers) as response:
        return response, b"".join([piece async for piece in response.aiter_raw()])


async def test_files_are_compressed_once_and_revalidated(client: httpx.AsyncClient) -> None:
    plain = (STATIC / FILE.removeprefix("/static/")).read_bytes()
    response, body = await raw_body(client, FILE, GZIP)
    assert gzip.decompress(body) == plain
    assert len(body) < len(plain) / 2
    assert response.headers["content-type"].startswith("text/javascript")
    assert (response.headers["vary"], response.headers["cache-control"]) == ("Accept-Encoding", "no-cache")
    unchanged, nothing = await raw_body(client, FILE, {**GZIP, "If-None-Match": response.headers["etag"]})
    assert (unchanged.status_code, nothing) == (304, b"")
    assert unchanged.headers["etag"] == response.headers["etag"]


@pytest.mark.parametrize("accepted", ["identity", "gzip;q=0", "br"])
async def test_clients_without_gzip_get_plain_files(client: httpx.AsyncClient, accepted: str) -> None:
    response, body = await raw_body(client, FILE, {"Accept-Encoding": accepted})
    assert "content-encoding" not in response.headers
    assert body == (STATIC / FILE.removeprefix("/static/")).read_bytes()


async def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    page = tmp_path / "page.js"
    page.write_text("first()")
    transport = httpx.ASGITransport(ConsoleFiles(directory=tmp_path))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as files:
        first = await files.get("/page.js")
        page.write_text("second(1)")
        second = await files.get("/page.js", headers={"If-None-Match": first.headers["etag"]})
    assert (first.text, second.text) == ("first()", "second(1)")


async def test_long_json_is_compressed(client: httpx.AsyncClient) -> None:
    for number in range(20):
        await push(client, "payload", queue=f"compressed-{number}")
    path = "/api/v1/resources/queues"
    plain_response, plain = await raw_body(client, path, {"Accept-Encoding": "identity"})
    response, body = await raw_body(client, path, GZIP)
    assert len(plain) > MIN_BYTES
    assert response.headers["content-encoding"] == "gzip"
    assert int(response.headers["content-length"]) == len(body) < len(plain) / 3
    assert b"compressed-19" in gzip.decompress(body)
    assert plain_response.headers["vary"] == response.headers["vary"] == "Accept-Encoding"


async def test_responses_with_secrets_and_small_ones_are_not_compressed(client: httpx.AsyncClient) -> None:
    for path in ("/api/v1/session", "/api/v1/operations/stats"):
        response, _ = await raw_body(client, path, GZIP)
        assert "content-encoding" not in response.headers


async def _events(request: Request) -> Response:
    return StreamingResponse(iter([b"data: 1\n\n" * 1_000] * 2), media_type="text/event-stream")


async def _lines(request: Request) -> Response:
    return StreamingResponse(iter([b'{"n":1}' * 1_000] * 2), media_type="application/json")


async def _large(request: Request) -> Response:
    return JSONResponse(["item"] * MAX_INLINE_BYTES)


async def test_streams_pass_unchanged_and_large_bodies_are_compressed() -> None:
    routes = [
        Route(f"/api/v1/{name}", endpoint)
        for name, endpoint in (("events", _events), ("lines", _lines), ("large", _large))
    ]
    transport = httpx.ASGITransport(CompressionMiddleware(Starlette(routes=routes)))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as streams:
        for name, size in (("events", 18_000), ("lines", 14_000)):
            response, body = await raw_body(streams, f"/api/v1/{name}", GZIP)
            assert ("content-encoding" in response.headers, len(body)) == (False, size)
        large, body = await raw_body(streams, "/api/v1/large", GZIP)
        assert large.headers["content-encoding"] == "gzip"
        assert gzip.decompress(body) == JSONResponse(["item"] * MAX_INLINE_BYTES).body
