"""Connections to a broker: reading responses, reusing connections, TLS, URLs with a path."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.client import AccessDenied, Client, ClientSettings, NoAnswer, ServerFault
from penstock.client.http.connections import BrokerEndpoint, ConnectionLost, Unreachable
from penstock.embedded.servers.ports import any_free_port
from tests.waiting import wait_until_async

NO_RETRIES = ClientSettings(retry_attempts=1)
OK_RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
EMPTY_RESPONSE = b"HTTP/1.1 204 No Content\r\n\r\n"


class FinalResponse(bytes):
    """A response after which the server closes the connection."""


class RawServer:
    """A server that sends one prepared response per request and records requests and connections."""

    def __init__(self, responses: list[bytes]) -> None:
        self.responses = responses
        self.requests: list[bytes] = []
        self.connections = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                response = self.responses.pop(0)
                writer.write(response)
                if isinstance(response, FinalResponse):
                    break
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def run_server(*responses: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawServer]:
    server = RawServer(list(responses))
    listener = await asyncio.start_server(server.handle_connection, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()


async def get(endpoint: BrokerEndpoint, response_timeout_s: float = 10) -> tuple[int, bytes]:
    response = await endpoint.request("GET", "/x", None, 10, response_timeout_s)
    return response.status, response.body


@pytest.mark.parametrize(
    "response",
    [
        OK_RESPONSE,
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK_RESPONSE,
        b"HTTP/1.1 200\r\nTRANSFER-ENCODING: Chunked\r\n\r\n1;x=y\r\no\r\n1\r\nk\r\n0\r\nT: x\r\n\r\n",
    ],
)
async def test_a_connection_is_reused_after_a_complete_response(response: bytes) -> None:
    async with run_server(response, response) as server:
        with closing(BrokerEndpoint(server.url)) as endpoint:
            assert [await get(endpoint), await get(endpoint)] == [(200, b"ok")] * 2
        assert server.connections == 1


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        OK_RESPONSE,
    ],
)
async def test_a_closed_connection_is_replaced(response: bytes) -> None:
    async with run_server(FinalResponse(response), FinalResponse(response)) as server:
        endpoint = BrokerEndpoint(server.url)

        async def is_closed() -> bool:
            return not any(connection.is_usable() for connection in endpoint._idle)

        assert await get(endpoint) == (200, b"ok")
        await wait_until_async(is_closed, 10, "the client notices that the connection is closed")
        assert await get(endpoint) == (200, b"ok")
        assert server.connections == 2
        endpoint.close()


async def test_a_response_without_a_body_is_complete() -> None:
    async with run_server(EMPTY_RESPONSE, OK_RESPONSE) as server:
        with closing(BrokerEndpoint(server.url)) as endpoint:
            assert [await get(endpoint), await get(endpoint)] == [(204, b""), (200, b"ok")]


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nok",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
    ],
)
async def test_an_incomplete_or_invalid_response_counts_as_a_lost_connection(response: bytes) -> None:
    async with run_server(FinalResponse(response)) as server:
        with pytest.raises(ConnectionLost):
            await get(BrokerEndpoint(server.url))


async def test_a_response_that_does_not_arrive_in_time_counts_as_a_lost_connection() -> None:
    async with run_server(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok") as server:
        with pytest.raises(ConnectionLost, match=r"no response within 0\.1 s"):
            await get(BrokerEndpoint(server.url), 0.1)


async def test_a_closed_port_is_unreachable() -> None:
    with pytest.raises(Unreachable):
        await get(BrokerEndpoint(f"http://127.0.0.1:{any_free_port()}"))


@pytest.mark.parametrize("url", ["http://me:secret@127.0.0.1:1", "ftp://me:secret@127.0.0.1"])
async def test_errors_do_not_show_a_password_in_the_url(url: str) -> None:
    with pytest.raises((NoAnswer, ValueError), match=r"://127\.0\.0\.1") as caught:
        async with Client(url, NO_RETRIES) as client:
            await client.pop("orders")
    assert "secret" not in str(caught.value)


async def test_the_url_of_a_broker_may_have_a_path() -> None:
    async with run_server(EMPTY_RESPONSE) as server, Client(f"{server.url}/queues/") as client:
        assert await client.pop("q") == []
    [request] = server.requests
    assert request.startswith(b"GET /queues/api/v1/pop/queue/q?batch=1 HTTP/1.1\r\n")
    assert f"\r\nHost: 127.0.0.1:{server.port}\r\n".encode() in request


async def test_the_response_of_another_server_is_a_server_fault() -> None:
    async with run_server(OK_RESPONSE) as server, Client(server.url, NO_RETRIES) as client:
        with pytest.raises(ServerFault, match="Is this a Penstock broker") as fault:
            await client.pop("q")
        assert fault.value.code == "unreadable_answer"


def write_certificate(directory: Path) -> Path:
    """Write a key and a self-signed certificate for 127.0.0.1 into a file; return its path."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "broker")])
    alternative_names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    certificate = builder.add_extension(alternative_names, critical=False).sign(key, hashes.SHA256())
    private_key = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = directory / "broker.pem"
    file.write_bytes(private_key + certificate.public_bytes(serialization.Encoding.PEM))
    return file


async def test_the_certificate_of_a_tls_broker_must_be_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_certificate(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(file)
    async with run_server(EMPTY_RESPONSE, tls=tls) as server:
        url = f"https://127.0.0.1:{server.port}"
        async with Client(url, NO_RETRIES) as distrusting_client:
            with pytest.raises(NoAnswer, match="certificate"):
                await distrusting_client.pop("q")
        for variable in ("SSL_CERT_FILE", "PENSTOCK_CA"):
            server.responses[:] = [EMPTY_RESPONSE]
            with monkeypatch.context() as variables:
                variables.setenv(variable, str(file))
                async with Client(url, NO_RETRIES) as trusting_client:
                    assert await trusting_client.pop("q") == []


async def test_every_request_carries_the_token() -> None:
    async with run_server(OK_RESPONSE, OK_RESPONSE) as server:
        endpoint = BrokerEndpoint(server.url, token="pk_secret")
        await get(endpoint)
        await get(endpoint)
        endpoint.close()
        assert all(b"\r\nAuthorization: Bearer pk_secret\r\n" in request for request in server.requests)
        assert len(server.requests) == 2


@pytest.mark.parametrize(("variable", "argument", "sent"), [("pk_a", None, "pk_a"), ("pk_a", "pk_b", "pk_b")])
async def test_the_token_comes_from_the_argument_or_the_environment(
    monkeypatch: pytest.MonkeyPatch, variable: str, argument: str | None, sent: str
) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", variable)
    async with run_server(EMPTY_RESPONSE) as server, Client(server.url, NO_RETRIES, token=argument) as client:
        await client.pop("q")
        assert f"Authorization: Bearer {sent}\r\n".encode() in server.requests[0]


async def test_without_a_token_no_request_carries_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_TOKEN", raising=False)
    async with run_server(EMPTY_RESPONSE) as server, Client(server.url, NO_RETRIES) as client:
        await client.pop("q")
        assert b"Authorization" not in server.requests[0]


@pytest.mark.parametrize("token", ["pk_a\r\nX-Other: 1", "pk_ä", "pk_a b"])
def test_a_token_that_no_header_can_carry_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(ValueError, match="The token has characters") as error:
        Client("http://127.0.0.1:7480", token=token)
    assert "pk_" not in str(error.value)


async def test_errors_and_objects_do_not_show_the_token() -> None:
    async with run_server(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n") as server:
        client = Client(server.url, NO_RETRIES, token="pk_secret")
        with pytest.raises(AccessDenied) as error:
            await client.pop("q")
        await client.close()
    texts = (str(error.value), repr(error.value), str(vars(error.value)), repr(client), repr(client._api))
    assert not any("pk_secret" in text for text in texts)
