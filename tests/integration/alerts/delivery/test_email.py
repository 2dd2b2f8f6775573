"""Notices as e-mail, through a real SMTP server with TLS and a login."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.alerts.delivery.address_check import AddressCheck
from penstock.alerts.delivery.channel_definitions import EmailChannel
from penstock.alerts.delivery.channel_service import parse_channel
from penstock.alerts.delivery.delivery_errors import AddressRefused, DeliveryFailed
from penstock.alerts.delivery.outbound import Outbound
from penstock.alerts.delivery.receivers.email_message import send_email
from tests.certificates import server_context
from tests.integration.alerts.delivery.smtp_receiver import receive_mail
from tests.unit.alerts.delivery.channels import channel_fields
from tests.unit.alerts.delivery.notices import outgoing_notice


def email_channel(port: int, **fields: object) -> EmailChannel:
    channel = parse_channel(channel_fields("email", host="localhost", port=port, **fields))
    assert isinstance(channel, EmailChannel)
    return channel


@pytest.mark.parametrize("security", ["starttls", "tls"])
async def test_a_mail_is_sent_with_encryption_and_a_login(
    outbound: Outbound, certificate: tuple[Path, Path], security: str
) -> None:
    notice = outgoing_notice()
    async with receive_mail(server_context(certificate), implicit_tls=security == "tls") as receiver:
        channel = email_channel(receiver.port, security=security)
        assert await send_email(channel, notice, outbound) is None
    [mail] = receiver.mails
    assert mail["Message-ID"] == f"<{notice.id}@shop.example>"
    assert mail["References"] == f"<incident-{notice.message.incident_id}@shop.example>"
    assert mail["Subject"] == "[Penstock] Firing: orders back up (critical)"
    assert mail["To"] == "ops@shop.example"
    body = str(mail.get_payload(decode=False))
    for text in (notice.message.summary, notice.message.cause, notice.message.runbook, notice.incident_url):
        assert str(text) in body
    assert receiver.logins == ["penstock"]


async def test_a_wrong_password_is_a_failure_that_does_not_show_it(
    outbound: Outbound, certificate: tuple[Path, Path]
) -> None:
    async with receive_mail(server_context(certificate)) as receiver:
        channel = email_channel(receiver.port, password="other-token")
        with pytest.raises(DeliveryFailed, match=r"localhost did not accept the mail: .*535") as failure:
            await send_email(channel, outgoing_notice(), outbound)
    assert "other-token" not in failure.value.detail
    assert receiver.mails == []


async def test_a_server_without_a_trusted_certificate_gets_no_password(
    certificate: tuple[Path, Path],
) -> None:
    untrusting = Outbound(AddressCheck("127.0.0.0/8"))
    async with receive_mail(server_context(certificate)) as receiver:
        with pytest.raises(DeliveryFailed, match="did not accept the mail"):
            await send_email(email_channel(receiver.port), outgoing_notice(), untrusting)
    assert receiver.logins == []


async def test_refused_recipients_are_named_and_the_others_get_the_mail(
    outbound: Outbound, certificate: tuple[Path, Path]
) -> None:
    refused = {"gone@shop.example": "550 no such user"}
    async with receive_mail(server_context(certificate), refused=refused) as receiver:
        channel = email_channel(receiver.port, to=["gone@shop.example", "ops@shop.example"])
        remark = await send_email(channel, outgoing_notice(), outbound)
        assert remark == "localhost refused gone@shop.example."
        assert len(receiver.mails) == 1
        with pytest.raises(DeliveryFailed, match="no such user"):
            await send_email(
                email_channel(receiver.port, to=["gone@shop.example"]), outgoing_notice(), outbound
            )


async def test_a_mail_server_at_a_private_address_is_refused(certificate: tuple[Path, Path]) -> None:
    async with receive_mail(server_context(certificate)) as receiver:
        with pytest.raises(AddressRefused):
            await send_email(email_channel(receiver.port), outgoing_notice(), Outbound(AddressCheck()))
    assert receiver.logins == []
