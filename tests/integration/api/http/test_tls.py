"""The HTTP protocol over TLS, and certificates that change while connections are open."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from penstock.api.http import fast_protocol
from penstock.api.tls_server import ServedCertificate
from penstock.client import Client, ClientSettings
from penstock.config import Settings
from penstock.tls_certificate import TlsFiles, pinned_client_context
from tests.certificates import create_certificate, trusting_context
from tests.deadlines import deadline_s
from tests.integration.api.http.raw_connections import (
    RawConnection,
    RunningServer,
    get,
    post,
    push_body,
    run_server,
)
from tests.waiting import wait_until_async


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    return create_certificate(tmp_path)


@pytest.fixture
def trusting(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    return trusting_context(certificate)


@pytest_asyncio.fixture
async def tls_server(settings: Settings, certificate: tuple[Path, Path]) -> AsyncIterator[RunningServer]:
    files = {"tls_cert": str(certificate[0]), "tls_key": str(certificate[1])}
    async with run_server(settings.model_copy(update=files)) as server:
        yield server


async def test_hot_requests_take_the_fast_path_over_tls(
    tls_server: RunningServer, trusting: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast_requests: list[bytes] = []
    run = fast_protocol.FastRequestCycle.run

    def record(cycle: fast_protocol.FastRequestCycle) -> None:
        fast_requests.append(cycle.protocol.url)
        run(cycle)

    monkeypatch.setattr(fast_protocol.FastRequestCycle, "run", record)
    connection = await RawConnection.open(tls_server, trusting)
    for payload in (1, 2, 3):
        connection.send(post("/api/v1/push", push_body("orders", payload)))
        assert (await connection.read_response())[0] == 201
    connection.send(get("/api/v1/pop/queue/orders?batch=10"))
    status, _, popped = await connection.read_response()
    assert status == 200
    assert [message["data"] for message in popped["messages"]] == [1, 2, 3]
    assert fast_requests == [b"/api/v1/push"] * 3 + [b"/api/v1/pop/queue/orders?batch=10"]
    connection.send(get("/health/live"))
    assert (await connection.read_response())[0] == 200
    connection.writer.close()


async def test_a_body_in_several_tls_records_and_a_large_response_arrive(
    tls_server: RunningServer, trusting: ssl.SSLContext
) -> None:
    connection = await RawConnection.open(tls_server, trusting)
    payload = b'"' + b"x" * 3_000_000 + b'"'
    request = post("/api/v1/push", b'{"items": [{"queue": "large", "payload": %s}]}' % payload)
    for start in range(0, len(request), 100_000):
        connection.send(request[start : start + 100_000])
        await connection.writer.drain()
    assert (await connection.read_response())[0] == 201
    connection.send(get("/api/v1/pop/queue/large"))
    status, _, popped = await connection.read_response()
    assert status == 200
    assert len(popped["messages"][0]["data"]) == 3_000_000
    connection.writer.close()


@pytest.mark.parametrize("is_abrupt", [True, False])
async def test_a_client_that_disconnects_while_it_waits_takes_no_message(
    tls_server: RunningServer, trusting: ssl.SSLContext, is_abrupt: bool
) -> None:
    waiting = await RawConnection.open(tls_server, trusting)
    waiting.send(get("/api/v1/pop/queue/orders?wait=true&timeout=60000"))
    await wait_until_async(lambda: has_parked(tls_server, 1), 10, "the pop waits")
    if is_abrupt:
        waiting.writer.transport.abort()
    else:
        waiting.writer.close()
    await wait_until_async(lambda: has_parked(tls_server, 0), 10, "the pop has ended")
    other = await RawConnection.open(tls_server, trusting)
    other.send(post("/api/v1/push", push_body("orders", 7)))
    assert (await other.read_response())[0] == 201
    other.send(get("/api/v1/pop/queue/orders"))
    assert (await other.read_response())[2]["messages"][0]["data"] == 7
    other.writer.close()


async def has_parked(server: RunningServer, count: int) -> bool:
    return server.parked_pops == count


async def test_plain_http_and_old_tls_are_refused(tls_server: RunningServer) -> None:
    plain = await RawConnection.open(tls_server)
    plain.send(get("/health/live"))
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await plain.read_response()
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await RawConnection.open(tls_server, old)


async def test_the_client_consumes_over_tls(
    tls_server: RunningServer, certificate: tuple[Path, Path]
) -> None:
    url = f"https://127.0.0.1:{tls_server.port}"
    async with Client(url, ClientSettings(tls=pinned_client_context(certificate[0]))) as client:
        await client.push("orders", {"number": 1})
        [message] = await client.pop("orders", wait=True)
        await client.ack(message)
        received = asyncio.Event()

        async def handle(_: object) -> None:
            received.set()

        consumer = client.consume("orders", handle)
        running = asyncio.create_task(consumer.run())
        await wait_until_async(lambda: has_parked(tls_server, 1), 10, "the consumer waits")
        await client.push("orders", {"number": 2})
        await asyncio.wait_for(received.wait(), deadline_s(30))
        consumer.stop()
        await running


async def test_new_connections_get_the_new_certificate_and_old_ones_go_on(
    tls_server: RunningServer, certificate: tuple[Path, Path], trusting: ssl.SSLContext, tmp_path: Path
) -> None:
    open_connection = await RawConnection.open(tls_server, trusting)
    replace_certificate(certificate, create_certificate(make_directory(tmp_path, "new")))
    renewed = trusting_context(certificate)

    async def serves_new_certificate() -> bool:
        connection = await RawConnection.open(tls_server, renewed)
        connection.send(post("/api/v1/push", push_body("orders", 1)))
        status, *_ = await connection.read_response()
        connection.writer.close()
        return status == 201

    await wait_until_async(serves_new_certificate, 10, "new connections get the new certificate")
    with pytest.raises(ssl.SSLCertVerificationError):
        await RawConnection.open(tls_server, trusting)
    open_connection.send(get("/api/v1/pop/queue/orders"))
    assert (await open_connection.read_response())[0] == 200
    open_connection.writer.close()


def test_a_broken_new_pair_keeps_the_old_one_and_is_logged_once(
    certificate: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = ServedCertificate(TlsFiles(*certificate))
    old_context = served._context
    replacement = create_certificate(make_directory(tmp_path, "new"))
    with caplog.at_level(logging.INFO):
        certificate[0].write_bytes(replacement[0].read_bytes())
        served.reload_if_changed()
        assert caplog.messages == []  # the files have not been the same for an interval
        for _ in range(3):
            served.reload_if_changed()
        [message] = caplog.messages
        assert message.startswith("The TLS certificate was not replaced. PENSTOCK_TLS_KEY: the key in")
        assert served._context is old_context
        certificate[1].write_bytes(replacement[1].read_bytes())
        served.reload_if_changed()
        served.reload_if_changed()
    assert "The TLS certificate was replaced." in caplog.messages[1]
    assert served._context is not old_context


def replace_certificate(files: tuple[Path, Path], replacement: tuple[Path, Path]) -> None:
    for old, new in zip(files, replacement, strict=True):
        new.replace(old)


def make_directory(parent: Path, name: str) -> Path:
    directory = parent / name
    directory.mkdir()
    return directory
