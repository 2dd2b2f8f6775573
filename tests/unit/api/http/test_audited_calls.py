"""The declared access of a route decides whether the audit log records its calls."""

from __future__ import annotations

import pytest

from penstock.api.access import NO_ACCESS
from penstock.api.http.audit_middleware import audited_calls
from penstock.caller import AccessScope


@pytest.mark.parametrize(
    ("method", "path", "access", "is_audited"),
    [
        ("POST", "/new", AccessScope.OPERATE, True),
        ("PATCH", "/new", AccessScope.CONFIGURE, True),
        ("DELETE", "/new", AccessScope.ADMIN, True),
        ("GET", "/new", AccessScope.ADMIN, False),
        ("HEAD", "/new", AccessScope.OPERATE, False),
        ("POST", "/new", AccessScope.READ, False),
        ("POST", "/new", AccessScope.PRODUCE | AccessScope.CONSUME, False),
        ("POST", "/new", AccessScope.PRODUCE | AccessScope.OPERATE, True),
        ("POST", "/api/v1/session", NO_ACCESS, True),
        ("GET", "/api/v1/session", NO_ACCESS, False),
        ("GET", "/auth/callback", NO_ACCESS, True),
        ("POST", "/new", NO_ACCESS, False),
    ],
)
def test_a_declaration_decides(method: str, path: str, access: AccessScope, is_audited: bool) -> None:
    assert ((method, path) in audited_calls({(method, path): access})) is is_audited
