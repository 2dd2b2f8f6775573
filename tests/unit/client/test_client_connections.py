"""How answers are told apart on a connection, whatever a server or a proxy sends."""

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

from penstock.client import Client, ClientSettings, NoAnswer, ServerFault
from penstock.client.http.connections import BrokerEndpoint, ConnectionLost, Unreachable
from penstock.embedded.servers.ports import any_free_port
from tests.waiting import wait_until_async

ONCE = ClientSettings(retry_attempts=1)
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Last(bytes):
    """An answer after which the server hangs up."""


class Server:
    """Sends what it is told to, one answer per request, and notes requests and connections."""

    def __init__(self, answers: list[bytes]) -> None:
        self.answers = answers
        self.requests: list[bytes] = []
        self.connections = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                answer = self.answers.pop(0)
                writer.write(answer)
                if isinstance(answer, Last):
                    break
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(*answers: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server(list(answers))
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()


async def get(place: BrokerEndpoint, answer_s: float = 10) -> tuple[int, bytes]:
    response = await place.request("GET", "/x", None, 10, answer_s)
    return response.status, response.body


@pytest.mark.parametrize(
    "answer",
    [
        GOOD,
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + GOOD,
        b"HTTP/1.1 200\r\nTRANSFER-ENCODING: Chunked\r\n\r\n1;x=y\r\no\r\n1\r\nk\r\n0\r\nT: x\r\n\r\n",
    ],
)
async def test_a_connection_is_used_again_after_a_whole_answer(answer: bytes) -> None:
    async with serving(answer, answer) as server:
        with closing(BrokerEndpoint(server.url)) as place:
            assert [await get(place), await get(place)] == [(200, b"ok")] * 2
        assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        GOOD,
    ],
)
async def test_a_connection_that_ends_is_replaced(answer: bytes) -> None:
    async with serving(Last(answer), Last(answer)) as server:
        place = BrokerEndpoint(server.url)

        async def ended() -> bool:
            return not any(connection.is_usable() for connection in place._idle)

        assert await get(place) == (200, b"ok")
        await wait_until_async(ended, 10, "the end of the connection arrives, too")
        assert await get(place) == (200, b"ok")
        assert server.connections == 2
        place.close()


async def test_an_answer_without_a_body_is_whole() -> None:
    async with serving(b"HTTP/1.1 204 No Content\r\n\r\n", GOOD) as server:
        with closing(BrokerEndpoint(server.url)) as place:
            assert [await get(place), await get(place)] == [(204, b""), (200, b"ok")]


@pytest.mark.parametrize(
    "answer",
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
async def test_half_an_answer_and_what_is_none_leave_open_what_happened(answer: bytes) -> None:
    async with serving(Last(answer)) as server:
        with pytest.raises(ConnectionLost):
            await get(BrokerEndpoint(server.url))


async def test_an_answer_that_does_not_come_in_time_is_not_waited_for() -> None:
    async with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok") as server:
        with pytest.raises(ConnectionLost, match=r"nothing within 0\.1 s"):
            await get(BrokerEndpoint(server.url), 0.1)


async def test_where_nobody_listens_nothing_was_sent() -> None:
    with pytest.raises(Unreachable):
        await get(BrokerEndpoint(f"http://127.0.0.1:{any_free_port()}"))


async def test_a_broker_may_live_below_a_path() -> None:
    async with (
        serving(b"HTTP/1.1 204 No Content\r\n\r\n") as server,
        Client(f"{server.url}/queues/") as client,
    ):
        assert await client.pop("q") == []
    [request] = server.requests
    assert request.startswith(b"GET /queues/api/v1/pop/queue/q?batch=1 HTTP/1.1\r\n")
    assert f"\r\nHost: 127.0.0.1:{server.port}\r\n".encode() in request


async def test_what_is_no_broker_is_told_apart() -> None:
    async with serving(GOOD) as server, Client(server.url, ONCE) as client:
        with pytest.raises(ServerFault, match="is this a Penstock broker") as fault:
            await client.pop("q")
        assert fault.value.code == "unreadable_answer"


def certificate(place: Path) -> Path:
    """A file with a key and a certificate for 127.0.0.1 that vouches for itself."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "broker")])
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    signed = made.add_extension(names, critical=False).sign(key, hashes.SHA256())
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = place / "broker.pem"
    file.write_bytes(secret + signed.public_bytes(serialization.Encoding.PEM))
    return file


async def test_a_broker_behind_tls_must_be_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = certificate(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(file)
    async with serving(b"HTTP/1.1 204 No Content\r\n\r\n", tls=tls) as server:
        url = f"https://127.0.0.1:{server.port}"
        async with Client(url, ONCE) as stranger:
            with pytest.raises(NoAnswer, match="certificate"):
                await stranger.pop("q")
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        async with Client(url, ONCE) as client:
            assert await client.pop("q") == []
