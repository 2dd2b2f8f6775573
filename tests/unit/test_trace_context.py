"""Trace contexts: parsing, and storing them with a payload."""

from __future__ import annotations

import pytest

from penstock.encryption import PayloadCipher
from penstock.trace_context import CONTEXT_BYTES, TraceContext, add_context, split_context
from tests.unit.test_encryption import key

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize("payload", [b"null", b'{"a": 1}', b"\x02 looks traced", b"\x01 looks encrypted"])
@pytest.mark.parametrize("keys", ["", f"k1:{key(1)}"])
def test_a_stored_context_is_split_from_its_payload(payload: bytes, keys: str) -> None:
    context = TraceContext.parse(TRACEPARENT)
    assert context is not None
    stored = add_context(payload, context)
    assert len(stored) == len(payload) + CONTEXT_BYTES
    assert split_context(stored) == (payload, TRACEPARENT)
    cipher = PayloadCipher(keys)
    opened = cipher.try_decrypt(cipher.encrypt(stored) if keys else stored)
    assert (opened.payload, opened.traceparent, opened.problem) == (payload, TRACEPARENT, None)


@pytest.mark.parametrize("payload", [b"", b"null", b'"text"'])
def test_a_payload_without_a_context_stays_as_it_is(payload: bytes) -> None:
    assert split_context(payload) == (payload, None)
    assert PayloadCipher().try_decrypt(payload).traceparent is None


def test_a_newer_version_is_kept_as_version_0() -> None:
    context = TraceContext.parse(f"01{TRACEPARENT[2:]}-more")
    assert str(context) == TRACEPARENT
