"""The outbox of notices: written with the decision they follow from, leased and sent afterwards."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from penstock.durable.pool import Session, fetch_value
from penstock.ids import new_id


@dataclass(frozen=True, slots=True)
class NoticeDraft:
    """A notice to write: once per incident, transition and channel."""

    incident_id: uuid.UUID
    transition: str
    channel_id: uuid.UUID
    message: msgspec.Struct
    """A NoticeMessage."""


async def write_notices(session: Session, drafts: Sequence[NoticeDraft]) -> int:
    """Add notices to the outbox, and return how many are new.

    With a connection as the session, they belong to its transaction. A notice that exists stays as it is, and
    a draft for a channel that was deleted is dropped.
    """
    if not drafts:
        return 0
    return await fetch_value(session, int, "SELECT write_notices_v1($1)", encode_drafts(drafts))


def encode_drafts(drafts: Sequence[NoticeDraft]) -> str:
    """Return the drafts as JSON for the SQL function `write_notices_v1`, with a new id for each."""
    rows = [
        {
            "id": new_id(),
            "incident_id": draft.incident_id,
            "transition": draft.transition,
            "channel_id": draft.channel_id,
            "message": draft.message,
        }
        for draft in drafts
    ]
    return msgspec.json.encode(rows).decode()
