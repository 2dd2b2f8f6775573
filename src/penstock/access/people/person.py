"""A person, or a service with a JWT, and the caller that it is in each environment."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.access.people.roles import (
    ROLES,
    EnvironmentRoles,
    RoleMapping,
    is_platform_admin,
    role_in,
)
from penstock.caller import Caller
from penstock.model import Scope

MAX_NAME_LENGTH = 200
MAX_GROUPS = 1_000
NAME_CLAIMS = ("preferred_username", "email", "name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A subject of the identity provider with its roles."""

    subject: str
    """The claim `sub`, which stays the same when a person changes their name."""
    name: str
    """For people to read; the provider may let a person choose it."""
    groups: Sequence[str]
    """At the identity provider."""
    roles: EnvironmentRoles
    _callers: dict[Scope, Caller] = field(default_factory=dict, compare=False, repr=False)

    def caller_in(self, environment: Scope) -> Caller:
        """Return the caller in this environment, where the person must have a role."""
        caller = self._callers.get(environment)
        if caller is None:
            role = role_in(self.roles, environment)
            assert role is not None
            caller = self._callers[environment] = Caller(
                environment,
                ROLES[role],
                f"user:{self.subject}",
                is_platform_admin=is_platform_admin(self.roles),
            )
        return caller

    def retain_environments(self, environments: Collection[Scope]) -> None:
        """End the requests that run with this person's access in any other environment."""
        for environment in [environment for environment in self._callers if environment not in environments]:
            self._callers.pop(environment).active = False

    def deactivate(self) -> None:
        """End the requests that run with this person's access."""
        self.retain_environments(())


def person_from_claims(claims: Mapping[str, Any], groups_claim: str, mapping: RoleMapping) -> Person:
    """Build the person that verified claims describe."""
    subject = str(claims["sub"])
    groups = groups_in(claims, groups_claim)[:MAX_GROUPS]
    names = (claims[name] for name in NAME_CLAIMS if isinstance(claims.get(name), str))
    return Person(
        subject=subject,
        name=next((name for name in names if name), subject)[:MAX_NAME_LENGTH],
        groups=groups,
        roles=mapping.roles_of(groups),
    )


def groups_in(claims: Mapping[str, Any], groups_claim: str) -> list[str]:
    """Return the groups of a claim: a list, or words in a text. A dot leads into a nested claim.

    Keycloak puts the roles of a realm into `realm_access.roles`, for example.
    """
    value: Any = claims
    if groups_claim in claims:
        value = claims[groups_claim]
    else:
        for name in groups_claim.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
    if isinstance(value, str):
        return value.split()
    return [group for group in value if isinstance(group, str)] if isinstance(value, list) else []
