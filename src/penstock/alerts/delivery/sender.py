"""Deliver due notices from the outbox, at least once each, with the same id in every attempt.

Several senders may run. A notice is leased while a sender works on it. A sender that is killed after sending
and before recording leaves a lease that expires; another one then sends the notice again, with the same id.
Each channel has one attempt in flight per sender, and channels do not wait for each other.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
import uuid
from contextlib import suppress
from typing import ClassVar

import msgspec

from penstock.alerts.delivery.address_check import AddressCheck
from penstock.alerts.delivery.backoff import Backoff
from penstock.alerts.delivery.channel_definitions import AnyChannel, list_secret_texts
from penstock.alerts.delivery.channel_secrets import ChannelSecrets
from penstock.alerts.delivery.channel_service import load_channel
from penstock.alerts.delivery.delivery_errors import DeliveryFailed
from penstock.alerts.delivery.notice import TEST, NoticeMessage
from penstock.alerts.delivery.outbound import Outbound
from penstock.alerts.delivery.outgoing_notice import OutgoingNotice, queue_page_path
from penstock.alerts.delivery.receivers.dispatch import send_notice
from penstock.background import BackgroundTask, cancel_and_wait
from penstock.config import Settings
from penstock.durable.alerts.incident_store import IncidentStore
from penstock.durable.alerts.notice_outbox import LeasedNotice, NoticeOutbox
from penstock.durable.alerts.silence_store import SilenceStore
from penstock.durable.pool import Session
from penstock.errors import DatabaseUnavailable, PenstockError
from penstock.ids import new_id
from penstock.listen_address import url_of_host

logger = logging.getLogger(__name__)

POLL_INTERVAL_S = 1.0
LEASE_MS = 60_000
"""Longer than an attempt: a notice whose sender lives is never sent by another one."""
ATTEMPT_TIMEOUT_S = 20.0
"""For name resolution, connection, TLS, request and response together."""
MAX_IN_FLIGHT = 200
STOP_GRACE_S = 3.0
"""How long attempts in flight may take to end when the sender stops."""
RECORD_RETRY_S = 1.0
PRUNE_INTERVAL_S = 600.0
PRUNE_LIMIT = 10_000
KEEP_NOTICE_DAYS = 31
KEEP_HISTORY_DAYS = 365.0


class Sender(BackgroundTask):
    """Sends notices until it is stopped."""

    task_name: ClassVar[str] = "alert sender"

    def __init__(
        self,
        session: Session,
        secrets: ChannelSecrets,
        outbound: Outbound,
        *,
        console_url: str = "",
        history_days: float = KEEP_HISTORY_DAYS,
        backoff: Backoff | None = None,
        poll_interval_s: float = POLL_INTERVAL_S,
        lease_ms: int = LEASE_MS,
        attempt_timeout_s: float = ATTEMPT_TIMEOUT_S,
    ) -> None:
        self.owner = new_id()
        self.sent = 0
        self.failed_attempts = 0
        self._outbox = NoticeOutbox(session)
        self._incidents = IncidentStore(session)
        self._silences = SilenceStore(session)
        self._history_days = history_days
        self._secrets = secrets
        self._outbound = outbound
        self._console_url = console_url.rstrip("/")
        self._backoff = backoff or Backoff()
        self._poll_interval_s = poll_interval_s
        self._lease_ms = lease_ms
        self._attempt_timeout_s = attempt_timeout_s
        self._attempts: dict[uuid.UUID, asyncio.Task[None]] = {}
        """The attempts in flight, by channel."""
        self._work = asyncio.Event()
        self._next_prune_s = 0.0

    @classmethod
    def from_settings(cls, session: Session, settings: Settings) -> Sender:
        return cls(
            session,
            ChannelSecrets(settings.encryption_keys),
            Outbound(AddressCheck(settings.alert_private_networks)),
            console_url=settings.public_url or _default_console_url(settings),
            history_days=settings.alert_history_days,
        )

    def notify_work(self) -> None:
        """Look for due notices at once instead of at the next interval."""
        self._work.set()

    async def _run(self) -> None:
        try:
            while True:
                self._work.clear()
                try:
                    await self._start_attempts()
                    await self._prune()
                except PenstockError as error:
                    logger.warning("Notices wait: %s", error.detail)
                except Exception:
                    logger.exception("Notices wait")
                await self._wait_for_work()
        finally:
            await self._stop_attempts()

    async def _wait_for_work(self) -> None:
        try:
            async with asyncio.timeout(self._poll_interval_s):
                await self._work.wait()
        except TimeoutError:
            return

    async def _start_attempts(self) -> None:
        limit = MAX_IN_FLIGHT - len(self._attempts)
        if limit <= 0:
            return
        leased = await self._outbox.lease(self.owner, limit, self._lease_ms, self._attempts.keys())
        for notice in leased:
            task = asyncio.create_task(self._attempt(notice), name=f"send notice {notice.id}")
            self._attempts[notice.channel_id] = task

    async def _stop_attempts(self) -> None:
        """Give attempts in flight a moment to end, then interrupt them and release their leases."""
        attempts = list(self._attempts.values())
        if attempts:
            await asyncio.wait(attempts, timeout=STOP_GRACE_S)
            await cancel_and_wait(*attempts)

    async def _attempt(self, notice: LeasedNotice) -> None:
        """Send a notice once and record the result."""
        lease_ends_s = time.monotonic() + self._lease_ms / 1000
        try:
            failure: DeliveryFailed | None = None
            remark: str | None = None
            try:
                remark = await self._send(notice)
            except DeliveryFailed as error:
                failure = error
            await self._record(notice, failure, remark, lease_ends_s)
        except asyncio.CancelledError:
            with suppress(DatabaseUnavailable):  # without it, the lease expires
                await self._outbox.release(notice.id, self.owner)
            raise
        finally:
            del self._attempts[notice.channel_id]
            self.notify_work()

    async def _send(self, notice: LeasedNotice) -> str | None:
        """Send the notice. Every failure becomes a DeliveryFailed without secrets in its text."""
        try:
            channel = load_channel(
                notice.channel_name, notice.kind, notice.settings, notice.secrets, self._secrets
            )
            message = msgspec.json.decode(notice.message, type=NoticeMessage)
        except (PenstockError, msgspec.ValidationError) as error:
            raise DeliveryFailed(str(error)) from None
        outgoing = OutgoingNotice(
            notice.id,
            notice.created_at,
            message,
            self._console_link(message.incident_path),
            self._console_link(queue_page_path(message, notice.created_at)),
        )
        try:
            async with asyncio.timeout(self._attempt_timeout_s):
                return await send_notice(channel, outgoing, self._outbound)
        except TimeoutError:
            raise DeliveryFailed(
                f"{channel.target} did not answer within {self._attempt_timeout_s:g} s."
            ) from None
        except DeliveryFailed as error:
            raise DeliveryFailed(
                redact(error.detail, channel),
                requested_delay_s=error.requested_delay_s,
                is_final=error.is_final,
            ) from None
        except Exception as error:  # noqa: BLE001 - recorded, logged and shown
            raise DeliveryFailed(redact(f"{type(error).__name__}: {error}", channel)) from None

    def _console_link(self, path: str | None) -> str | None:
        return f"{self._console_url}{path}" if self._console_url and path else None

    async def _record(
        self, notice: LeasedNotice, failure: DeliveryFailed | None, remark: str | None, lease_ends_s: float
    ) -> None:
        """Record the result, again and again while PostgreSQL is away and the lease lasts."""
        while True:
            try:
                if failure is None:
                    await self._record_sent(notice, remark)
                else:
                    await self._record_failure(notice, failure)
                return
            except DatabaseUnavailable as error:
                if time.monotonic() >= lease_ends_s:
                    logger.error("The result of notice %s is not recorded: %s", notice.id, error.detail)
                    return
                await asyncio.sleep(RECORD_RETRY_S)

    async def _record_sent(self, notice: LeasedNotice, remark: str | None) -> None:
        await self._outbox.record_sent(notice.id, self.owner, remark)
        self.sent += 1

    async def _record_failure(self, notice: LeasedNotice, failure: DeliveryFailed) -> None:
        is_final = failure.is_final or notice.transition == TEST
        delay_s = None if is_final else self._backoff.next_delay_s(notice.attempts, failure.requested_delay_s)
        await self._outbox.record_failure(notice.id, self.owner, failure.detail, delay_s)
        self.failed_attempts += 1
        next_attempt = "no further attempt" if delay_s is None else f"next attempt in {delay_s:.0f} s"
        logger.warning(
            "Attempt %d to send notice %s to channel %r failed, %s: %s",
            notice.attempts,
            notice.id,
            notice.channel_name,
            next_attempt,
            failure.detail,
        )

    async def _prune(self) -> None:
        """Delete old notices, and resolved incidents and ended silences past their retention."""
        if time.monotonic() >= self._next_prune_s:
            self._next_prune_s = time.monotonic() + PRUNE_INTERVAL_S
            await self._outbox.prune(KEEP_NOTICE_DAYS, PRUNE_LIMIT)
            await self._incidents.prune(self._history_days, PRUNE_LIMIT)
            await self._silences.prune(self._history_days, PRUNE_LIMIT)


def _default_console_url(settings: Settings) -> str:
    """Return the broker's address; the machine's name if the broker listens on all addresses."""
    host = socket.gethostname() if settings.host in ("0.0.0.0", "::") else settings.host
    return url_of_host(settings, host)


def redact(text: str, channel: AnyChannel) -> str:
    """Replace the channel's secrets in a text, which a receiver may repeat in its answer.

    Characters that cannot be printed are replaced too: PostgreSQL stores no NUL, and a terminal obeys some.
    """
    for secret in list_secret_texts(channel):
        text = text.replace(secret, "***")
    return "".join(character if character.isprintable() else "?" for character in text)
