"""Channels and their notices, as the API manages them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from penstock.alerts.delivery.channel_definitions import AnyChannel, split_secrets
from penstock.alerts.delivery.channel_secrets import ChannelSecrets
from penstock.alerts.delivery.notice import TEST, NoticeMessage
from penstock.body_error_text import describe_body_error
from penstock.durable.alerts.channel_store import ChannelRow, ChannelStore, StoredChannel
from penstock.durable.alerts.notice_outbox import NoticeFilter, NoticeOutbox, NoticeRecord
from penstock.durable.pool import Session
from penstock.errors import InvalidRequest, PenstockError, WrongState
from penstock.model import Scope

__all__ = ["NoticeFilter", "NoticeRecord"]

DESTINATION_FIELDS = ("url", "host", "port")
"""Secrets are sent to the destination, so a new destination needs them anew."""


class UnknownChannel(PenstockError):
    code = "unknown_alert_channel"
    status = 404
    title = "Unknown alert channel"


class ChannelExists(PenstockError):
    code = "alert_channel_exists"
    status = 409
    title = "Alert channel exists"


class ChannelInUse(PenstockError):
    code = "alert_channel_in_use"
    status = 409
    title = "Alert channel in use"


class UnknownNotice(PenstockError):
    code = "unknown_alert_notice"
    status = 404
    title = "Unknown alert notice"


class StoredSettings(msgspec.Struct, rename="camel"):
    """The JSON in the column `settings`: what may be shown of a channel."""

    fields: dict[str, object]
    target: str
    secret_fields: list[str]


@dataclass(frozen=True, slots=True)
class ChannelDescription:
    """A channel without its secrets."""

    id: uuid.UUID
    name: str
    kind: str
    enabled: bool
    settings: StoredSettings
    created_at: datetime
    updated_at: datetime


class AlertChannels:
    """Creates, changes, lists and deletes channels. Secrets go in and never come out."""

    def __init__(self, session: Session, secrets: ChannelSecrets) -> None:
        self._channels = ChannelStore(session)
        self._outbox = NoticeOutbox(session)
        self._secrets = secrets

    async def list_channels(self, scope: Scope) -> list[ChannelDescription]:
        """Return all channels of the environment by name."""
        return [_describe(row) for row in await self._channels.list_channels(scope)]

    async def get(self, scope: Scope, name: str) -> ChannelDescription:
        return _describe(await self._find(scope, name))

    async def create(self, scope: Scope, fields: dict[str, object]) -> ChannelDescription:
        """Create the channel that the fields describe. Raises InvalidRequest or ChannelExists."""
        channel = parse_channel(fields)
        row = await self._channels.create(scope, self._to_stored(channel))
        if row is None:
            raise ChannelExists(
                f"The channel {channel.name!r} exists. Change it with "
                f"PUT /api/v1/alert-channels/{channel.name}."
            )
        return _describe(row)

    async def replace(self, scope: Scope, name: str, fields: dict[str, object]) -> ChannelDescription:
        """Replace a channel. Missing secret fields keep their values, unless the destination changes."""
        row = await self._find(scope, name)
        fields = {"name": name, "kind": row.kind} | fields
        if fields["name"] != name:
            raise InvalidRequest("A channel cannot be renamed. Create a new one.", field="name")
        if fields["kind"] == row.kind:
            fields = self._kept_secrets(row, fields) | fields
        replaced = await self._channels.replace(row.id, self._to_stored(parse_channel(fields)))
        if replaced is None:
            raise _unknown_channel(name)
        return _describe(replaced)

    async def delete(self, scope: Scope, name: str) -> None:
        """Delete a channel and its notices. Raises ChannelInUse while rules name it."""
        deletion = await self._channels.delete(scope, name)
        if deletion.rules:
            raise ChannelInUse(
                f"The channel {name!r} is used by the rules {', '.join(map(repr, deletion.rules))}. "
                "Remove it from them first.",
                rules=deletion.rules,
            )
        if not deletion.deleted:
            raise _unknown_channel(name)

    async def send_test(self, scope: Scope, name: str) -> NoticeRecord:
        """Write a test notice; the sender makes one attempt to deliver it."""
        row = await self._find(scope, name)
        message = NoticeMessage(
            incident_id=None,
            transition=TEST,
            environment="/".join(scope),
            rule_name="Test notice",
            rule_type=TEST,
            severity="info",
            summary=f"This is a test of the channel {name}. Nothing is wrong.",
            opened_at=datetime.now(UTC),
        )
        return await self.get_notice(scope, await self._outbox.write_test(row.id, message))

    async def list_notices(
        self, scope: Scope, notice_filter: NoticeFilter, *, limit: int, offset: int
    ) -> list[NoticeRecord]:
        """Return a page of notices with the state of their delivery, the latest first."""
        return await self._outbox.list_notices(scope, notice_filter, limit=limit, offset=offset)

    async def get_notice(self, scope: Scope, notice_id: uuid.UUID) -> NoticeRecord:
        notices = await self._outbox.list_notices(scope, NoticeFilter(notice_id=notice_id))
        if not notices:
            raise UnknownNotice(
                f"The notice {notice_id} does not exist. GET /api/v1/alert-notices lists them."
            )
        return notices[0]

    async def retry_notice(self, scope: Scope, notice_id: uuid.UUID) -> NoticeRecord:
        """Send a failed notice again. Raises WrongState if it is not failed."""
        retried = await self._outbox.retry(scope, notice_id)
        notice = await self.get_notice(scope, notice_id)
        if not retried:
            raise WrongState(
                f"The notice {notice_id} is {notice.state}. Only a failed one can be sent again."
            )
        return notice

    async def _find(self, scope: Scope, name: str) -> ChannelRow:
        rows = await self._channels.list_channels(scope, name)
        if not rows:
            raise _unknown_channel(name)
        return rows[0]

    def _kept_secrets(self, row: ChannelRow, fields: dict[str, object]) -> dict[str, object]:
        """Return the stored values of the secret fields that the new fields lack."""
        stored = msgspec.json.decode(row.settings, type=StoredSettings)
        missing = [name for name in stored.secret_fields if name not in fields]
        if not missing:
            return {}
        for name in DESTINATION_FIELDS:
            if name in stored.fields and fields.get(name, stored.fields[name]) != stored.fields[name]:
                raise InvalidRequest(
                    f"{name} changes, so the stored secrets are not kept. "
                    f"Send {' and '.join(missing)} again.",
                    field=missing[0],
                )
        secrets = self._secrets.decrypt(row.secrets)
        return {name: secrets[name] for name in missing}

    def _to_stored(self, channel: AnyChannel) -> StoredChannel:
        fields, secrets = split_secrets(channel)
        settings = StoredSettings(fields, channel.target, list(secrets))
        encrypted = self._secrets.encrypt(secrets)
        text = msgspec.json.encode(settings).decode()
        return StoredChannel(channel.name, channel.kind, text, encrypted, channel.enabled)


def parse_channel(fields: dict[str, object]) -> AnyChannel:
    """Return the channel that the fields describe. Raises InvalidRequest, whose text quotes no values."""
    if _has_control_character(fields):
        raise InvalidRequest("The channel is not valid: a text has a control character. Remove it.")
    try:
        channel: AnyChannel = msgspec.convert(fields, AnyChannel)
    except msgspec.ValidationError as error:
        sentence, field = describe_body_error(error)
        raise InvalidRequest(f"The channel is not valid: {sentence}", field=field) from None
    return channel


def load_channel(
    name: str, kind: str, settings: str, stored_secrets: bytes, secrets: ChannelSecrets
) -> AnyChannel:
    """Return a stored channel with its secrets. Raises ChannelKeyMissing without their key."""
    fields = msgspec.json.decode(settings, type=StoredSettings).fields
    return parse_channel({**fields, **secrets.decrypt(stored_secrets), "name": name, "kind": kind})


def _has_control_character(value: object) -> bool:
    """Whether a text in the value has one: PostgreSQL, mail headers and URLs allow none."""
    if isinstance(value, str):
        return any(ord(character) < 32 or ord(character) == 127 for character in value)
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(_has_control_character, values))


def _describe(row: ChannelRow) -> ChannelDescription:
    settings = msgspec.json.decode(row.settings, type=StoredSettings)
    return ChannelDescription(
        row.id, row.name, row.kind, row.enabled, settings, row.created_at, row.updated_at
    )


def _unknown_channel(name: str) -> UnknownChannel:
    return UnknownChannel(
        f"The channel {name!r} does not exist. Create it with POST /api/v1/alert-channels or "
        "`penstock alerts channels create`."
    )
