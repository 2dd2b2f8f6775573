"""Cookies of the console: the session, and the login that is under way.

Scripts cannot read them (HttpOnly), other sites cannot send them with requests that change something
(SameSite=Lax), and behind TLS they are never sent in plain text (Secure).
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from penstock.access.authentication import SESSION_COOKIE
from penstock.access.people.login_attempt import MAX_AGE_S
from penstock.access.sessions.session_service import NewSession
from penstock.api.http.client_address import is_https
from penstock.api.services import get_services

LOGIN_COOKIE = "penstock_login"
LOGIN_PATH = "/auth"
"""Only these routes get the cookie of a login."""


def set_session_cookie(request: Request, response: Response, new_session: NewSession) -> None:
    _set_cookie(request, response, SESSION_COOKIE, new_session.cookie, int(new_session.expires_in_s), "/")


def set_login_cookie(request: Request, response: Response, value: str) -> None:
    _set_cookie(request, response, LOGIN_COOKIE, value, MAX_AGE_S, LOGIN_PATH)


def clear_session_cookie(request: Request, response: Response) -> None:
    _set_cookie(request, response, SESSION_COOKIE, "", 0, "/")


def clear_login_cookie(request: Request, response: Response) -> None:
    _set_cookie(request, response, LOGIN_COOKIE, "", 0, LOGIN_PATH)


def base_url(request: Request) -> str:
    """The address of the console as its users see it."""
    public_url = get_services(request).settings.public_url
    scheme = "https" if is_https(request) else "http"
    return public_url or f"{scheme}://{request.headers.get('host', 'localhost')}"


def _set_cookie(
    request: Request, response: Response, name: str, value: str, max_age_s: int, path: str
) -> None:
    is_secure = base_url(request).startswith("https://")
    response.set_cookie(
        name, value, max_age=max_age_s, path=path, secure=is_secure, httponly=True, samesite="lax"
    )
