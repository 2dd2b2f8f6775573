"""Keep the console read-only where `PENSTOCK_CONSOLE` says so.

Requests of the console are those with a session. Without authentication there are no sessions: then they are
those that a browser sends. A request with a token of its own keeps what the token allows.
"""

from __future__ import annotations

from penstock.access.authentication import HeaderFields, bearer_secret, session_cookie
from penstock.api.http.origin_check import is_sent_by_browser
from penstock.caller import AccessScope
from penstock.config import Settings
from penstock.errors import Forbidden

READING_ACCESS = AccessScope.READ | AccessScope.READ_PAYLOAD
READ_ONLY = "read-only"


def only_reads(settings: Settings, fields: HeaderFields) -> bool:
    """Whether the request comes from a console that is read-only."""
    if settings.console != READ_ONLY or bearer_secret(fields.get(b"authorization", b"")):
        return False
    return bool(session_cookie(fields)) or is_sent_by_browser(fields)


def check_console_access(settings: Settings, fields: HeaderFields, access: AccessScope) -> None:
    """Raise Forbidden if a console that is read-only sends a request that needs more than reading."""
    if only_reads(settings, fields) and access & ~READING_ACCESS:
        raise Forbidden(
            "The console of this broker is read-only. Use the command penstock or the API with a token, or "
            "start the broker with PENSTOCK_CONSOLE=on."
        )
