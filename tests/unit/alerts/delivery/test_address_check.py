"""Which addresses channels may connect to."""

from __future__ import annotations

import pytest

from penstock.alerts.delivery.address_check import AddressCheck
from penstock.alerts.delivery.delivery_errors import AddressRefused, DeliveryFailed
from penstock.errors import ConfigError


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),
        *(
            "224.0.0.1",
            "255.255.255.255",
            "192.0.2.1",
            "::",
            "::1",
            "fe80::1",
            "fe80::1%eth0",
            "fd00::1",
            "ff02::1",
        ),
        *("::ffff:127.0.0.1", "64:ff9b::10.0.0.1", "2002:7f00:1::", "2002:a00:1::1"),
    ],
)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert not AddressCheck().is_allowed(address)


@pytest.mark.parametrize(
    "address", ["93.184.215.14", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1"]
)
def test_a_public_address_is_allowed(address: str) -> None:
    assert AddressCheck().is_allowed(address)


def test_a_private_network_of_the_setting_is_allowed() -> None:
    check = AddressCheck("10.1.0.0/16, ::1")
    assert check.is_allowed("10.1.2.3")
    assert check.is_allowed("::1")
    assert check.is_allowed("::ffff:10.1.2.3")
    assert not check.is_allowed("10.2.0.1")


@pytest.mark.parametrize("text", ["10.0.0.1/8", "private", "10.0.0.0/33"])
def test_a_network_that_is_not_valid_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="PENSTOCK_ALERT_PRIVATE_NETWORKS must be networks"):
        AddressCheck(text)


async def test_only_the_allowed_addresses_of_a_name_are_used() -> None:
    async def resolver(host: str, port: int) -> list[str]:
        return ["10.0.0.1", "93.184.215.14"]

    assert await AddressCheck(resolver=resolver).resolve("mixed.example", 443) == ["93.184.215.14"]


async def test_a_name_with_private_addresses_only_is_refused() -> None:
    async def resolver(host: str, port: int) -> list[str]:
        return ["10.0.0.1", "fd00::1"]

    with pytest.raises(
        AddressRefused, match=r"'inner\.example' has the private address 10\.0\.0\.1, fd00::1"
    ):
        await AddressCheck(resolver=resolver).resolve("inner.example", 443)


async def test_a_name_that_cannot_be_resolved_is_a_failure_to_retry() -> None:
    async def resolver(host: str, port: int) -> list[str]:
        raise OSError("Name or service not known")

    with pytest.raises(DeliveryFailed, match="cannot be resolved"):
        await AddressCheck(resolver=resolver).resolve("missing.example", 443)
