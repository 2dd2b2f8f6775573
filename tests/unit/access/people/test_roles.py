"""The setting oidc_roles, and the roles that groups get from it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from penstock.access.people.person import Person, groups_in, person_from_claims
from penstock.access.people.roles import ROLES, RoleMapping
from penstock.caller import ALL_ACCESS, AccessScope
from penstock.errors import ConfigError
from penstock.model import DEFAULT_SCOPE, Scope

SHOP = Scope("acme", "shop", "production")


def test_a_role_without_an_environment_is_in_the_default_one() -> None:
    assert RoleMapping("ops=operator").roles_of(["ops"]) == {"default/default/default": "operator"}


def test_the_highest_role_of_all_groups_counts_in_each_environment() -> None:
    mapping = RoleMapping("*=viewer, ops=operator, dev=payload-viewer, ops=viewer@acme/shop/production")
    assert mapping.roles_of(["dev", "ops"]) == {
        "default/default/default": "operator",
        "acme/shop/production": "viewer",
    }
    assert mapping.roles_of([]) == {"default/default/default": "viewer"}


def test_a_group_may_contain_an_equals_sign_and_an_at_sign() -> None:
    mapping = RoleMapping("cn=ops@example.com=admin@*")
    assert mapping.roles_of(["cn=ops@example.com"]) == {"*": "admin"}
    assert mapping.roles_of(["ops"]) == {}


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("operator", "must be group=role"),
        ("=operator", "must be group=role"),
        ("ops=root", "'root' is not a role"),
        ("ops=viewer@shop", "must be organization/project/environment"),
        ("ops=viewer@", "must be organization/project/environment"),
        ("ops=viewer@acme/*/production/eu", "must be organization/project/environment"),
    ],
)
def test_a_wrong_setting_says_what_is_wrong(setting: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        RoleMapping(setting)


def test_each_role_includes_the_lower_ones() -> None:
    roles = list(ROLES.values())
    assert all(lower in higher for lower, higher in pairwise(roles))
    assert AccessScope.READ_PAYLOAD not in ROLES["viewer"]
    assert ROLES["admin"] == ALL_ACCESS


def test_a_person_is_a_caller_where_they_have_a_role() -> None:
    person = Person(subject="4711", name="alice", groups=[], roles={"acme/shop/production": "operator"})
    caller = person.caller_in(SHOP)
    assert (caller.environment, caller.access, caller.subject) == (SHOP, ROLES["operator"], "user:4711")
    assert person.caller_in(SHOP) is caller
    assert not caller.is_platform_admin


def test_an_admin_of_every_environment_is_a_platform_administrator() -> None:
    person = Person(
        subject="1", name="root", groups=[], roles={"*": "admin", "acme/shop/production": "viewer"}
    )
    assert person.caller_in(SHOP).access == ALL_ACCESS
    assert person.caller_in(SHOP).is_platform_admin
    viewer = Person(subject="2", name="all", groups=[], roles={"*": "viewer"})
    assert not viewer.caller_in(SHOP).is_platform_admin


def test_the_end_of_a_session_ends_the_callers_of_the_person() -> None:
    person = Person(subject="1", name="alice", groups=[], roles={"*": "admin"})
    callers = [person.caller_in(DEFAULT_SCOPE), person.caller_in(SHOP)]
    person.retain_environments({SHOP})
    assert [caller.active for caller in callers] == [False, True]
    person.deactivate()
    assert [caller.active for caller in callers] == [False, False]


@pytest.mark.parametrize(
    ("claims", "claim", "groups"),
    [
        ({"groups": ["a", 1, "b"]}, "groups", ["a", "b"]),
        ({"groups": "a b"}, "groups", ["a", "b"]),
        ({"realm_access": {"roles": ["a"]}}, "realm_access.roles", ["a"]),
        ({"https://example.com/groups": ["a"]}, "https://example.com/groups", ["a"]),
        ({"groups": {"a": True}}, "groups", []),
        ({"groups": "text"}, "groups.roles", []),
        ({}, "groups", []),
    ],
)
def test_groups_are_a_list_or_words(claims: dict[str, object], claim: str, groups: list[str]) -> None:
    assert groups_in(claims, claim) == groups


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"sub": "1", "name": "Alice", "email": "a@example.com", "preferred_username": "alice"}, "alice"),
        ({"sub": "1", "preferred_username": "", "email": "a@example.com"}, "a@example.com"),
        ({"sub": "1", "name": 5}, "1"),
        ({"sub": "1", "name": "x" * 999}, "x" * 200),
    ],
)
def test_the_name_of_a_person_is_for_people(claims: dict[str, object], name: str) -> None:
    person = person_from_claims(claims, "groups", RoleMapping("*=viewer"))
    assert (person.subject, person.name) == ("1", name)
