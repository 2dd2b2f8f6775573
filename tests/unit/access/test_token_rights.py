"""Nobody hands on more than they have, and bad rights are refused with a reason."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.access.token_rights import access_names, check_rights, parse_access, parse_patterns
from penstock.access.token_secret import hash_secret, is_token_secret, new_secret, secret_prefix
from penstock.caller import ALL_ACCESS, LOCAL_CALLER, AccessScope, Caller, NamePatterns
from penstock.errors import Forbidden, InvalidRequest
from penstock.model import DEFAULT_SCOPE

QUEUES = NamePatterns(("orders-*", "invoices"))


def caller(
    access: AccessScope = ALL_ACCESS, queues: NamePatterns | None = None, *, is_platform_admin: bool = False
) -> Caller:
    return Caller(DEFAULT_SCOPE, access, "token:t", queues=queues, is_platform_admin=is_platform_admin)


def patterns(*texts: str) -> NamePatterns | None:
    return parse_patterns("queues", list(texts) or None)


def test_a_secret_is_recognisable_and_long() -> None:
    secret, other_secret = new_secret(), new_secret()
    assert is_token_secret(secret)
    assert len(secret) == 3 + 43
    assert secret != other_secret
    assert secret.startswith(secret_prefix(secret))
    assert len(secret_prefix(secret)) == 10
    assert hash_secret(secret) != hash_secret(other_secret)
    assert len(hash_secret(secret)) == 32


def test_scopes_are_read_and_written_by_name() -> None:
    access = parse_access(["admin", "read:payload", "read"])
    assert access == AccessScope.ADMIN | AccessScope.READ_PAYLOAD | AccessScope.READ
    assert access_names(access) == ["read", "read:payload", "admin"]


@pytest.mark.parametrize(("names", "text"), [([], "no scope"), (["write"], "Unknown scope 'write'")])
def test_a_token_needs_known_scopes(names: list[str], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        parse_access(names)


@pytest.mark.parametrize("texts", [[], [""], ["a\nb"], ["a" * 256], ["a"] * 101])
def test_patterns_that_cannot_be_meant_are_refused(texts: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="queues"):
        parse_patterns("queues", texts)


def test_a_caller_hands_on_its_own_scopes_only() -> None:
    producer = caller(AccessScope.PRODUCE | AccessScope.ADMIN)
    check_rights(producer, AccessScope.PRODUCE, None, None, False)
    with pytest.raises(Forbidden, match="scope consume"):
        check_rights(producer, AccessScope.PRODUCE | AccessScope.CONSUME, None, None, False)


def test_only_a_platform_administrator_creates_platform_administrators() -> None:
    check_rights(LOCAL_CALLER, ALL_ACCESS, None, None, True)
    with pytest.raises(Forbidden, match="platform administrator"):
        check_rights(caller(), ALL_ACCESS, None, None, True)


@pytest.mark.parametrize("texts", [["orders-new"], ["orders-*"], ["orders-eu-*"], ["invoices", "orders-1"]])
def test_a_limited_caller_hands_on_narrower_patterns(texts: list[str]) -> None:
    check_rights(caller(queues=QUEUES), AccessScope.READ, patterns(*texts), None, False)


@pytest.mark.parametrize(
    "texts", [[], ["*"], ["orders*"], ["invoices*"], ["orders-1", "other"], ["*-orders-1"]]
)
def test_a_limited_caller_hands_on_no_wider_patterns(texts: list[str]) -> None:
    with pytest.raises(Forbidden, match=r"limited to the queues orders-\*, invoices"):
        check_rights(caller(queues=QUEUES), AccessScope.READ, patterns(*texts), None, False)


def test_groups_are_limited_like_queues() -> None:
    limited = Caller(DEFAULT_SCOPE, ALL_ACCESS, "token:t", groups=NamePatterns(("billing",)))
    check_rights(limited, AccessScope.CONSUME, None, NamePatterns(("billing",)), False)
    with pytest.raises(Forbidden, match="groups billing"):
        check_rights(limited, AccessScope.CONSUME, None, NamePatterns(("*",)), False)


patterns_of_two_letters = st.text("ab*", min_size=1, max_size=6)


@given(patterns_of_two_letters, patterns_of_two_letters, st.text("ab", max_size=8))
def test_no_name_of_an_accepted_pattern_is_outside_the_allowed_one(
    allowed: str, requested: str, name: str
) -> None:
    try:
        check_rights(
            caller(queues=NamePatterns((allowed,))), AccessScope.READ, NamePatterns((requested,)), None, False
        )
    except Forbidden:
        return
    assert not fnmatchcase(name, requested) or fnmatchcase(name, allowed)
