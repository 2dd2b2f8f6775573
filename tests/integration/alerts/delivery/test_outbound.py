"""HTTP requests to receivers: checked addresses, refused redirects, bounded responses."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.alerts.delivery.address_check import AddressCheck
from penstock.alerts.delivery.delivery_errors import AddressRefused, DeliveryFailed
from penstock.alerts.delivery.outbound import Outbound
from tests.certificates import server_context, trusting_context
from tests.integration.alerts.delivery.http_receiver import http_response, receive_http


class ChangingResolver:
    """Returns the next address of a list for every lookup, whatever the name is."""

    def __init__(self, *addresses: str) -> None:
        self._addresses = list(addresses)
        self.lookups = 0

    async def __call__(self, host: str, port: int) -> list[str]:
        self.lookups += 1
        return [self._addresses.pop(0)]


async def test_a_request_uses_the_name_of_the_url_for_host_and_certificate(
    outbound: Outbound, certificate: tuple[Path, Path]
) -> None:
    async with receive_http(tls_context=server_context(certificate)) as receiver:
        await outbound.post(receiver.url, b"{}")
    [request] = receiver.requests
    assert request.headers["host"] == f"localhost:{receiver.port}"
    assert request.path == "/hook/path-token?sig=query-token"


async def test_a_certificate_of_another_name_is_refused(certificate: tuple[Path, Path]) -> None:
    async def resolver(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    outbound = Outbound(AddressCheck("127.0.0.0/8", resolver), trusting_context(certificate))
    async with receive_http(tls_context=server_context(certificate)) as receiver:
        with pytest.raises(DeliveryFailed, match=r"not valid for 'receiver\.example'"):
            await outbound.post(f"https://receiver.example:{receiver.port}/", b"{}")
    assert receiver.requests == []


async def test_a_redirect_is_not_followed(outbound: Outbound) -> None:
    async with receive_http() as target, receive_http([http_response(302, location=target.url)]) as receiver:
        with pytest.raises(DeliveryFailed, match="redirect"):
            await outbound.post(receiver.url, b"{}")
    assert target.requests == []


async def test_a_private_address_is_refused_without_a_connection() -> None:
    async with receive_http() as receiver:
        with pytest.raises(AddressRefused, match="PENSTOCK_ALERT_PRIVATE_NETWORKS"):
            await Outbound(AddressCheck()).post(receiver.url, b"{}")
        with pytest.raises(AddressRefused, match="PENSTOCK_ALERT_PRIVATE_NETWORKS"):
            await Outbound(AddressCheck()).open_socket("localhost", receiver.port)
    assert receiver.requests == []


async def test_a_name_that_turns_private_after_it_was_public_is_refused() -> None:
    resolver = ChangingResolver("93.184.215.14", "127.0.0.1")
    check = AddressCheck(resolver=resolver)
    assert await check.resolve("rebinding.example", 80) == ["93.184.215.14"]
    async with receive_http() as receiver:
        with pytest.raises(AddressRefused):
            await Outbound(check).post(f"http://rebinding.example:{receiver.port}/", b"{}")
    assert receiver.requests == []


async def test_a_connection_uses_the_address_that_was_checked() -> None:
    # A second lookup would lead to a closed port of an address that is allowed as well.
    resolver = ChangingResolver("127.0.0.1", "127.0.0.2")
    async with receive_http() as receiver:
        await Outbound(AddressCheck("127.0.0.0/8", resolver)).post(
            f"http://receiver.example:{receiver.port}/", b"{}"
        )
    assert len(receiver.requests) == 1
    assert resolver.lookups == 1


async def test_the_next_address_is_tried_if_one_refuses_the_connection() -> None:
    async def resolver(host: str, port: int) -> list[str]:
        return ["127.0.0.3", "127.0.0.1"]

    outbound = Outbound(AddressCheck("127.0.0.0/8", resolver))
    async with receive_http() as receiver:
        await outbound.post(f"http://receiver.example:{receiver.port}/", b"{}")
        connection = await outbound.open_socket("receiver.example", receiver.port)
        connection.close()
    assert len(receiver.requests) == 1


async def test_only_the_start_of_a_response_is_read_and_quoted(outbound: Outbound) -> None:
    endless = http_response(500, b"sorry " * 100_000)
    async with receive_http([endless]) as receiver:
        with pytest.raises(DeliveryFailed, match="HTTP 500: sorry sorry") as failure:
            await outbound.post(receiver.url, b"{}")
    assert len(failure.value.detail) < 300


async def test_retry_after_is_part_of_the_failure(outbound: Outbound) -> None:
    async with receive_http([http_response(429, retry_after="120")]) as receiver:
        with pytest.raises(DeliveryFailed) as failure:
            await outbound.post(receiver.url, b"{}")
    assert failure.value.requested_delay_s == 120


async def test_a_closed_port_is_a_failure(outbound: Outbound) -> None:
    async with receive_http() as receiver:
        url = receiver.url
    with pytest.raises(DeliveryFailed, match="The request to localhost failed"):
        await outbound.post(url, b"{}")
