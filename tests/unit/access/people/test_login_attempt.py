"""The cookie of a login, and the page that the browser goes to after it."""

from __future__ import annotations

import pytest

from penstock.access.people.login_attempt import MAX_AGE_S, LoginCookie, local_path, new_attempt
from penstock.errors import LoginFailed
from tests.unit.access.people.signing_keys import NOW


def test_a_cookie_brings_the_attempt_back() -> None:
    attempt = new_attempt("/?queue=orders")
    cookie = LoginCookie("secret").encode(attempt)
    assert LoginCookie("secret").decode(cookie) == attempt
    assert attempt.state not in cookie
    assert attempt.verifier not in cookie


def test_a_cookie_of_another_secret_or_with_a_change_is_refused() -> None:
    cookie = LoginCookie("secret").encode(new_attempt("/"))
    for client_secret, text in [
        ("another", cookie),
        ("secret", cookie[:-2] + "AA"),
        ("secret", ""),
        ("secret", "é"),
    ]:
        with pytest.raises(LoginFailed):
            LoginCookie(client_secret).decode(text)


def test_a_login_takes_at_most_ten_minutes() -> None:
    cookie = LoginCookie("secret", clock=lambda: NOW).encode(new_attempt("/"))
    LoginCookie("secret", clock=lambda: NOW + MAX_AGE_S).decode(cookie)
    with pytest.raises(LoginFailed, match="ten minutes"):
        LoginCookie("secret", clock=lambda: NOW + MAX_AGE_S + 1).decode(cookie)


@pytest.mark.parametrize("path", ["/", "/?queue=orders&period=1d", "/docs#/queues", "/a//b"])
def test_a_local_path_stays(path: str) -> None:
    assert local_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        *("", "orders", "//evil.example", "///evil.example", "/\\evil.example", "\\\\evil.example"),
        *("https://evil.example", "javascript:alert(1)", "/\t/evil.example", "/\n/evil.example", "/ü"),
        *("/auth/login", "/auth/callback?code=x", "/" + "a" * 3000),
    ],
)
def test_other_places_become_the_first_page(path: str) -> None:
    assert local_path(path) == "/"


def test_every_login_has_secrets_of_its_own() -> None:
    attempts = [new_attempt("/") for _ in range(3)]
    texts = {text for attempt in attempts for text in (attempt.state, attempt.nonce, attempt.verifier)}
    assert len(texts) == 9
    assert all(43 <= len(attempt.verifier) <= 128 for attempt in attempts), "RFC 7636, section 4.1"
