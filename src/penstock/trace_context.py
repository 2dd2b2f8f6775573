"""The trace context of a message: `traceparent` of W3C Trace Context, and how it is stored.

It is stored in front of the payload, so it follows the message through deferral, the journal, dead letters
and requeues, and a message without one takes no bytes and no work. A payload with a trace context starts
with the byte 2, which no JSON text does. Layout: 2, 16 bytes of trace id, 8 bytes of parent id, 1 byte of
flags, payload. An encrypted payload has it inside.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TRACED_MARK = b"\x02"
CONTEXT_BYTES = 26
"""The length of the mark and the trace context. `plain_payload_v1` in SQL has the same number."""

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The parts of a `traceparent`, in hexadecimal digits."""

    trace_id: str
    parent_id: str
    flags: str

    @classmethod
    def parse(cls, traceparent: str) -> TraceContext | None:
        """Parse a `traceparent`; None if it is invalid, as the standard asks for."""
        match = _TRACEPARENT.fullmatch(traceparent)
        return cls(match[1], match[2], match[3]) if match else None

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.parent_id}-{self.flags}"


def add_context(payload: bytes, context: TraceContext) -> bytes:
    """Return the payload with a trace context, as it is stored."""
    return TRACED_MARK + bytes.fromhex(context.trace_id + context.parent_id + context.flags) + payload


def has_context(stored: bytes) -> bool:
    """Return whether a decrypted payload has a trace context."""
    return stored[:1] == TRACED_MARK


def split_context(stored: bytes) -> tuple[bytes, str | None]:
    """Return the payload as it was pushed, and the `traceparent` that was stored with it, if any."""
    if not has_context(stored):
        return stored, None
    digits = stored[1:CONTEXT_BYTES].hex()
    return stored[CONTEXT_BYTES:], str(TraceContext(digits[:32], digits[32:48], digits[48:]))
