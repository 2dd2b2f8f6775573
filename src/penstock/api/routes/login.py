"""Pages of the login through OpenID Connect. Browsers open them; they are no part of the API."""

from __future__ import annotations

from html import escape

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from penstock.access.authentication import session_cookie
from penstock.access.people.oidc_login import CALLBACK_PATH, OidcLogin
from penstock.api.access import PUBLIC, header_fields
from penstock.api.audited_change import audit_subject
from penstock.api.http.client_address import client_address
from penstock.api.problems import from_penstock_error
from penstock.api.services import get_services
from penstock.api.session_cookies import (
    LOGIN_COOKIE,
    base_url,
    clear_login_cookie,
    set_login_cookie,
    set_session_cookie,
)
from penstock.errors import LoginDisabled, PenstockError

router = APIRouter(dependencies=[PUBLIC], include_in_schema=False)

_ERROR_PAGE = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>{title} – Penstock</title>
  <link rel="icon" href="/static/icon.svg" type="image/svg+xml">
  <link rel="stylesheet" href="/static/style.css">
</head>
<body>
  <section class="login">
    <h1>{title}</h1>
    <p role="alert">{detail}</p>
    <p><a class="button" href="/">Back to Penstock</a></p>
  </section>
</body>
</html>
"""


@router.get("/auth/login")
async def start_login(request: Request) -> Response:
    """Send the browser to the provider's login page. `next` is the page of the console to come back to."""
    services = get_services(request)
    try:
        services.login_limits.check(client_address(request))
        login = _require_login(services.identity_provider.login)
        url, cookie = await login.start(base_url(request), request.query_params.get("next", "/"))
    except PenstockError as error:
        return _error_response(request, error)
    response = RedirectResponse(url, 303)
    set_login_cookie(request, response, cookie)
    return response


@router.get(CALLBACK_PATH)
async def finish_login(request: Request) -> Response:
    """Take the browser back from the provider: create a session and open the console."""
    services = get_services(request)
    try:
        login = _require_login(services.identity_provider.login)
        cookie = request.cookies.get(LOGIN_COOKIE, "")
        person, next_path = await login.finish(base_url(request), request.query_params, cookie)
        audit_subject(request, f"user:{person.subject}")
        new_session = await services.sessions.create_for_person(person)
        if previous_cookie := session_cookie(header_fields(request)):
            await services.sessions.end(previous_cookie)
    except PenstockError as error:
        response = _error_response(request, error)
        clear_login_cookie(request, response)
        return response
    response = RedirectResponse(next_path, 303)
    set_session_cookie(request, response, new_session)
    clear_login_cookie(request, response)
    return response


def _require_login(login: OidcLogin | None) -> OidcLogin:
    if login is None:
        raise LoginDisabled(
            "No identity provider is configured. Log in with a token, or set PENSTOCK_OIDC_ISSUER."
        )
    return login


def _error_response(request: Request, error: PenstockError) -> Response:
    """A page for people, a problem document for programs."""
    response = from_penstock_error(error)
    if "text/html" not in request.headers.get("accept", ""):
        return response
    page = _ERROR_PAGE.format(title=escape(error.title), detail=escape(error.detail))
    retry_after = {name: value for name, value in response.headers.items() if name == "retry-after"}
    return HTMLResponse(page, response.status_code, retry_after)
