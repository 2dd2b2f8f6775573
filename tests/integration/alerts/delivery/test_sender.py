"""Senders deliver each notice of the outbox, to receivers that fail in every way."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from penstock.alerts.delivery.address_check import AddressCheck
from penstock.alerts.delivery.backoff import Backoff
from penstock.alerts.delivery.channel_secrets import ChannelSecrets
from penstock.alerts.delivery.notice import RESOLVED
from penstock.alerts.delivery.outbound import Outbound
from penstock.alerts.delivery.sender import Sender
from penstock.durable.alerts.notice_outbox import NoticeOutbox
from penstock.durable.pool import Database
from penstock.ids import new_id
from penstock.model import DEFAULT_SCOPE
from tests.certificates import server_context
from tests.integration.alerts.delivery.http_receiver import (
    HANG,
    OK,
    HttpReceiver,
    http_response,
    receive_http,
)
from tests.integration.alerts.delivery.outbox import FAST, Outbox
from tests.unit.alerts.delivery.channels import (
    OTHER_ENCRYPTION_KEYS,
    OTHER_SIGNING_SECRET,
    SIGNING_SECRET,
    contains_secret,
)
from tests.waiting import wait_until_async


def received_ids(receiver: HttpReceiver) -> list[str]:
    return [request.headers["webhook-id"] for request in receiver.requests]


async def _has_failed(sender: Sender) -> bool:
    return sender.failed_attempts > 0


async def test_a_webhook_arrives_once_with_a_signature_that_verifies(
    outbox: Outbox, certificate: tuple[Path, Path]
) -> None:
    async with receive_http(tls_context=server_context(certificate)) as receiver:
        incident_id = await outbox.write(await outbox.add_channel(receiver.url))
        async with outbox.run_sender():
            [notice] = await outbox.wait_for_notices("sent")
    [request] = receiver.requests
    event = Webhook(SIGNING_SECRET).verify(request.body, request.headers)
    assert event["type"] == "alert.opened"
    assert event["data"]["incidentId"] == str(incident_id)
    assert event["data"]["incidentUrl"] == "https://penstock.example/#incidents/1"
    queue_page = "https://penstock.example/console/queues/orders?from=2026-03-01T11:30:00.000Z&to="
    assert event["data"]["queueUrl"].startswith(queue_page)
    assert request.headers["webhook-id"] == event["data"]["id"] == str(notice.id)
    assert (notice.attempts, notice.last_error) == (1, None)
    assert notice.sent_at is not None


async def test_during_a_rotation_both_secrets_sign(outbox: Outbox) -> None:
    async with receive_http() as receiver:
        channel_id = await outbox.add_channel(receiver.url)
        both: dict[str, object] = {"signingSecrets": [OTHER_SIGNING_SECRET, SIGNING_SECRET]}
        await outbox.channels.replace(DEFAULT_SCOPE, "ops", both)
        await outbox.write(channel_id)
        async with outbox.run_sender():
            [request] = await receiver.wait_for_requests(1)
    for secret in (SIGNING_SECRET, OTHER_SIGNING_SECRET):
        assert Webhook(secret).verify(request.body, request.headers)["type"] == "alert.opened"


async def test_a_failed_attempt_is_repeated_with_the_same_id(outbox: Outbox) -> None:
    async with receive_http([http_response(500, b"broken"), http_response(503), OK]) as receiver:
        await outbox.write(await outbox.add_channel(receiver.url))
        async with outbox.run_sender():
            [notice] = await outbox.wait_for_notices("sent")
    assert received_ids(receiver) == [str(notice.id)] * 3
    assert notice.attempts == 3


async def test_after_the_last_attempt_a_notice_is_failed_and_can_be_sent_again(outbox: Outbox) -> None:
    responses = [http_response(500, b"broken")] * FAST.max_attempts
    async with receive_http([*responses, OK]) as receiver:
        await outbox.write(await outbox.add_channel(receiver.url))
        async with outbox.run_sender():
            [failed] = await outbox.wait_for_notices("failed")
            assert failed.attempts == FAST.max_attempts == len(receiver.requests)
            assert failed.last_error == "localhost answered HTTP 500: broken"
            await outbox.channels.retry_notice(DEFAULT_SCOPE, failed.id)
            [sent] = await outbox.wait_for_notices("sent")
    assert sent.attempts == 1
    assert set(received_ids(receiver)) == {str(failed.id)}


async def test_an_answer_that_is_no_text_is_recorded(outbox: Outbox) -> None:
    async with receive_http([http_response(500, b"\x00bro\xffken\x1b[31m")]) as receiver:
        await outbox.add_channel(receiver.url)
        await outbox.channels.send_test(DEFAULT_SCOPE, "ops")
        async with outbox.run_sender():
            [notice] = await outbox.wait_for_notices("failed")
    assert notice.last_error == "localhost answered HTTP 500: ?bro\ufffdken?[31m"


async def test_a_receiver_that_is_gone_gets_no_other_attempt(outbox: Outbox) -> None:
    async with receive_http([http_response(410)]) as receiver:
        await outbox.write(await outbox.add_channel(receiver.url))
        async with outbox.run_sender():
            [notice] = await outbox.wait_for_notices("failed")
    assert notice.attempts == 1


async def test_the_next_attempt_waits_as_long_as_the_receiver_asks(outbox: Outbox) -> None:
    async with receive_http([http_response(429, b"slow down", retry_after="900")]) as receiver:
        await outbox.write(await outbox.add_channel(receiver.url))
        async with outbox.run_sender() as sender:
            await wait_until_async(lambda: _has_failed(sender), 20, "an attempt fails")
            [notice] = await outbox.list_notices("pending")
    assert notice.last_error == "localhost answered HTTP 429: slow down"
    assert (notice.next_attempt_at - notice.created_at).total_seconds() >= 900


async def test_a_receiver_that_hangs_holds_up_no_other_channel(outbox: Outbox) -> None:
    async with receive_http([HANG]) as hanging, receive_http() as receiver:
        slow = await outbox.add_channel(hanging.url, "slow")
        others = [await outbox.add_channel(receiver.url, f"ops{number}") for number in range(20)]
        await outbox.write(slow, *others)
        await outbox.write(slow, *others)
        async with outbox.run_sender(attempt_timeout_s=60):
            await hanging.wait_for_requests(1)
            sent = await outbox.wait_for_notices("sent", 2 * len(others))
            # The slow channel is still busy with its first attempt.
            assert hanging.concurrent == len(hanging.requests) == 1
    assert "slow" not in {notice.channel for notice in sent}


async def test_an_attempt_ends_after_its_timeout(outbox: Outbox) -> None:
    async with receive_http([HANG, OK]) as receiver:
        await outbox.write(await outbox.add_channel(receiver.url))
        async with outbox.run_sender(attempt_timeout_s=0.2):
            [notice] = await outbox.wait_for_notices("sent")
    assert notice.attempts == 2


async def test_two_senders_send_every_notice_once(outbox: Outbox) -> None:
    async with receive_http() as receiver:
        channel_ids = [await outbox.add_channel(receiver.url, f"ops{number}") for number in range(10)]
        for _ in range(5):
            await outbox.write(*channel_ids)
        async with outbox.run_sender() as first, outbox.run_sender() as second:
            await outbox.wait_for_notices("sent", 50)
        assert first.sent + second.sent == 50
    ids = received_ids(receiver)
    assert len(ids) == len(set(ids)) == 50


async def test_the_lease_of_a_killed_sender_expires_and_another_one_delivers(outbox: Outbox) -> None:
    async with receive_http() as receiver:
        await outbox.write(await outbox.add_channel(receiver.url))
        # A sender that is killed has a lease and never records a result.
        [leased] = await NoticeOutbox(outbox.database).lease(new_id(), 10, 300, ())
        async with outbox.run_sender():
            [notice] = await outbox.wait_for_notices("sent")
    assert received_ids(receiver) == [str(leased.id)]
    assert notice.attempts == 2


async def test_a_result_after_the_lease_was_lost_changes_nothing(outbox: Outbox, database: Database) -> None:
    await outbox.write(await outbox.add_channel("http://localhost:1/"))
    notices, late_owner, owner = NoticeOutbox(database), new_id(), new_id()
    [leased] = await notices.lease(late_owner, 10, 0, ())
    assert [notice.id for notice in await notices.lease(owner, 10, 60_000, ())] == [leased.id]
    assert not await notices.record_failure(leased.id, late_owner, "late", None)
    assert await notices.lease(late_owner, 10, 60_000, ()) == []
    assert await notices.record_sent(leased.id, owner)


async def test_the_notices_of_an_incident_arrive_in_order(outbox: Outbox) -> None:
    async with receive_http([http_response(500), http_response(500), OK]) as receiver:
        channel_id = await outbox.add_channel(receiver.url)
        incident_id = await outbox.write(channel_id)
        await outbox.write(channel_id, transition="update 1", incident_id=incident_id)
        await outbox.write(channel_id, transition=RESOLVED, incident_id=incident_id)
        async with outbox.run_sender():
            await outbox.wait_for_notices("sent", 3)
    types = [request.json["type"].removeprefix("alert.") for request in receiver.requests]
    assert types == ["opened", "opened", "opened", "updated", "resolved"]


async def test_a_sender_that_stops_releases_the_notice_it_was_sending(outbox: Outbox) -> None:
    async with receive_http([HANG, OK]) as receiver:
        await outbox.write(await outbox.add_channel(receiver.url))
        async with outbox.run_sender():
            await receiver.wait_for_requests(1)
        async with outbox.run_sender():
            [notice] = await outbox.wait_for_notices("sent")
    assert notice.attempts == 2


async def test_a_disabled_channel_gets_test_notices_only(outbox: Outbox) -> None:
    async with receive_http() as receiver:
        channel_id = await outbox.add_channel(receiver.url)
        await outbox.channels.replace(DEFAULT_SCOPE, "ops", {"enabled": False})
        await outbox.write(channel_id)
        await outbox.channels.send_test(DEFAULT_SCOPE, "ops")
        async with outbox.run_sender():
            [notice] = await outbox.wait_for_notices("sent")
    assert notice.transition == "test"
    assert [request.json["type"] for request in receiver.requests] == ["alert.test"]


async def test_a_test_notice_has_one_attempt(outbox: Outbox) -> None:
    async with receive_http(
        [http_response(404, b"Cannot POST /hook/path-token?sig=query-token")]
    ) as receiver:
        await outbox.add_channel(receiver.url)
        await outbox.channels.send_test(DEFAULT_SCOPE, "ops")
        async with outbox.run_sender():
            [notice] = await outbox.wait_for_notices("failed")
    assert notice.attempts == 1
    assert notice.last_error == "localhost answered HTTP 404: Cannot POST ***?***"


async def test_a_private_address_is_refused_and_the_error_says_what_to_do(
    outbox: Outbox, database: Database
) -> None:
    outbox.outbound = Outbound(AddressCheck())
    async with receive_http() as receiver:
        await outbox.add_channel(receiver.url)
        await outbox.channels.send_test(DEFAULT_SCOPE, "ops")
        async with outbox.run_sender():
            [notice] = await outbox.wait_for_notices("failed")
    assert "PENSTOCK_ALERT_PRIVATE_NETWORKS" in (notice.last_error or "")
    assert receiver.requests == []


async def test_a_sender_without_the_key_reports_it(outbox: Outbox) -> None:
    await outbox.add_channel("http://localhost:1/")
    await outbox.channels.send_test(DEFAULT_SCOPE, "ops")
    outbox.secrets = ChannelSecrets(OTHER_ENCRYPTION_KEYS)
    async with outbox.run_sender():
        [notice] = await outbox.wait_for_notices("failed")
    assert "PENSTOCK_ENCRYPTION_KEYS" in (notice.last_error or "")


@pytest.mark.parametrize("kind", ["webhook", "slack", "teams"])
async def test_secrets_are_neither_in_the_log_nor_in_the_errors(
    outbox: Outbox, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = http_response(400, b"no: /hook/path-token?sig=query-token")
    async with receive_http([echo, http_response(302, location="/path-token"), HANG, OK]) as receiver:
        await outbox.write(await outbox.add_channel(receiver.url, kind=kind))
        async with outbox.run_sender(attempt_timeout_s=0.2, backoff=Backoff(first_s=0.01, jitter=0)):
            await outbox.wait_for_notices("sent")
    assert len(receiver.requests) == 4
    own_records = [record for record in caplog.records if not record.name.startswith("asyncpg")]
    assert any("failed" in record.getMessage() for record in own_records)
    # The response's own headers, which httpcore logs at the level debug, are the receiver's.
    texts = [
        record.getMessage() for record in own_records if "receive_response_headers" not in record.getMessage()
    ]
    assert [text for text in texts if contains_secret(text)] == []
