"""RFC 9562 UUIDv7: time-ordered, and monotonic within a process."""

from __future__ import annotations

import uuid

from uuid_utils.compat import uuid7


def new_id() -> uuid.UUID:
    return uuid7()
