"""Channels in PostgreSQL: settings as JSON, secrets encrypted by the caller."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime

from penstock.durable.pool import Session, fetch_all, fetch_one
from penstock.ids import new_id
from penstock.model import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRow:
    """A row of `alert_channels`."""

    id: uuid.UUID
    environment_id: int
    name: str
    kind: str
    settings: str
    secrets: bytes = field(repr=False)
    enabled: bool
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ChannelDeletion:
    """Whether a channel was deleted; otherwise, the rules that use it. Neither: it does not exist."""

    deleted: bool
    rules: list[str]


@dataclass(frozen=True, slots=True)
class StoredChannel:
    """What the caller stores of a channel."""

    name: str
    kind: str
    settings: str
    secrets: bytes = field(repr=False)
    enabled: bool


class ChannelStore:
    """Reads and writes the channels of an environment."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def create(self, scope: Scope, channel: StoredChannel) -> ChannelRow | None:
        """Store a new channel; None if the environment has one of this name."""
        return await fetch_one(
            self._session,
            ChannelRow,
            "SELECT * FROM create_alert_channel_v1($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            *scope,
            new_id(),
            channel.name,
            channel.kind,
            channel.settings,
            channel.secrets,
            channel.enabled,
        )

    async def replace(self, channel_id: uuid.UUID, channel: StoredChannel) -> ChannelRow | None:
        """Replace all but the name of a channel; None if it was deleted."""
        return await fetch_one(
            self._session,
            ChannelRow,
            "SELECT * FROM replace_alert_channel_v1($1, $2, $3, $4, $5)",
            channel_id,
            channel.kind,
            channel.settings,
            channel.secrets,
            channel.enabled,
        )

    async def list_channels(self, scope: Scope, name: str | None = None) -> list[ChannelRow]:
        """Return the channels of an environment by name, or the one of this name."""
        return await fetch_all(
            self._session, ChannelRow, "SELECT * FROM alert_channels_v1($1, $2, $3, $4)", *scope, name
        )

    async def delete(self, scope: Scope, name: str) -> ChannelDeletion:
        """Delete a channel with its notices, unless a rule uses it."""
        deletion = await fetch_one(
            self._session,
            ChannelDeletion,
            "SELECT * FROM delete_alert_channel_v1($1, $2, $3, $4)",
            *scope,
            name,
        )
        assert deletion is not None
        return deletion
