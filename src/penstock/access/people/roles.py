"""Roles of people: named sets of access scopes, assigned to the groups of the identity provider."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.caller import ALL_ACCESS, AccessScope
from penstock.errors import ConfigError
from penstock.model import DEFAULT_SCOPE, Scope

ROLES: dict[str, AccessScope] = {
    "viewer": AccessScope.READ,
    "payload-viewer": AccessScope.READ | AccessScope.READ_PAYLOAD,
    "operator": AccessScope.READ | AccessScope.READ_PAYLOAD | AccessScope.OPERATE,
    "admin": ALL_ACCESS,
}
"""From the least to the most: each role includes the ones before it."""

EVERY_PERSON = "*"
EVERY_ENVIRONMENT = "*"
SETTING = "PENSTOCK_OIDC_ROLES"
_RANKS = {role: rank for rank, role in enumerate(ROLES)}
_ENVIRONMENT_PATTERN = re.compile(r"[^/\s]+/[^/\s]+/[^/\s]+")

EnvironmentRoles = Mapping[str, str]
"""Role by environment: `organization/project/environment`, or `*` for every environment."""


@dataclass(frozen=True, slots=True)
class RoleAssignment:
    """A role that the members of a group have in an environment."""

    group: str
    role: str
    environment: str


class RoleMapping:
    """The roles of people by their groups: `group=role[@organization/project/environment][,…]`."""

    def __init__(self, setting: str) -> None:
        entries = (entry.strip() for entry in setting.split(","))
        self.assignments = [_parse_assignment(entry) for entry in entries if entry]

    def roles_of(self, groups: Iterable[str]) -> dict[str, str]:
        """Return the highest role in each environment that these groups give."""
        memberships = {*groups, EVERY_PERSON}
        roles: dict[str, str] = {}
        for assignment in self.assignments:
            if assignment.group in memberships:
                current = roles.get(assignment.environment, assignment.role)
                roles[assignment.environment] = max(current, assignment.role, key=_RANKS.__getitem__)
        return roles


def _parse_assignment(entry: str) -> RoleAssignment:
    group, equals, target = entry.rpartition("=")
    role, at, environment = target.partition("@")
    if not (group and equals):
        raise ConfigError(f"{SETTING}: {entry!r} must be group=role or group=role@environment.")
    if role not in ROLES:
        raise ConfigError(f"{SETTING}: {role!r} is not a role. Use {', '.join(ROLES)}.")
    if not at:
        environment = format_environment(DEFAULT_SCOPE)
    elif environment != EVERY_ENVIRONMENT and not _ENVIRONMENT_PATTERN.fullmatch(environment):
        raise ConfigError(
            f"{SETTING}: {environment!r} must be organization/project/environment, or * for every one."
        )
    return RoleAssignment(group, role, environment)


def format_environment(environment: Scope) -> str:
    return "/".join(environment)


def role_in(roles: EnvironmentRoles, environment: Scope) -> str | None:
    """Return the highest role in this environment; None if there is none."""
    keys = (format_environment(environment), EVERY_ENVIRONMENT)
    return max((roles[key] for key in keys if key in roles), key=_RANKS.__getitem__, default=None)


def is_platform_admin(roles: EnvironmentRoles) -> bool:
    return roles.get(EVERY_ENVIRONMENT) == "admin"
