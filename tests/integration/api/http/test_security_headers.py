"""The security headers of the application's responses."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from penstock.api.http.security_headers import HEADERS
from penstock.config import Settings
from penstock.console import STATIC
from tests.certificates import create_certificate
from tests.integration.api.http.raw_connections import RawConnection, RunningServer, get, run_server


@pytest.mark.parametrize(
    ("path", "status"),
    [("/", 200), ("/docs", 200), ("/metrics", 200), ("/static/icon.svg", 200), ("/no/such/route", 404)],
)
async def test_every_response_has_the_headers(server: RunningServer, path: str, status: int) -> None:
    connection = await RawConnection.open(server)
    connection.send(get(path))
    actual_status, headers, _ = await connection.read_response()
    assert actual_status == status
    for name, value in HEADERS:
        assert headers[name.decode()] == value.decode()
    assert "strict-transport-security" not in headers
    connection.writer.close()


async def test_refusals_have_the_headers_too(client: httpx.AsyncClient) -> None:
    response = await client.get("/health", headers={"Host": "attacker.example"})
    assert response.status_code == 421
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-store"


async def test_the_policy_allows_neither_inline_code_nor_eval(client: httpx.AsyncClient) -> None:
    policy = (await client.get("/")).headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    for page in STATIC.glob("*.html"):
        text = page.read_text()
        assert "<style" not in text
        assert " style=" not in text
        assert text.count("<script") == text.count("<script ") == text.count("></script>")


async def test_caches_store_files_alone(client: httpx.AsyncClient) -> None:
    assert (await client.get("/api/v1/resources/queues")).headers["cache-control"] == "no-store"
    assert (await client.get("/openapi.json")).headers["cache-control"] == "no-store"
    for path in ("/", "/static/icon.svg"):
        assert (await client.get(path)).headers["cache-control"] == "no-cache", "browsers revalidate files"


async def test_strict_transport_is_set_over_tls_for_names_of_the_broker(
    settings: Settings, tmp_path: Path
) -> None:
    certificate, key = map(str, create_certificate(tmp_path))
    names = {"allowed_hosts": "queues.example.com", "tls_cert": certificate, "tls_key": key}
    async with (
        run_server(settings.model_copy(update=names)) as server,
        httpx.AsyncClient(base_url=f"https://127.0.0.1:{server.port}", verify=False) as client,
    ):
        by_name = await client.get("/health/live", headers={"Host": "queues.example.com"})
        assert by_name.headers["strict-transport-security"] == "max-age=31536000"
        for local_name in ("localhost", "127.0.0.1"):
            response = await client.get("/health/live", headers={"Host": local_name})
            assert "strict-transport-security" not in response.headers
