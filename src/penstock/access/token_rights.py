"""What a token allows, as text and as a value, and whether a caller may hand it on."""

from __future__ import annotations

import math
from collections.abc import Mapping

from penstock.caller import ACCESS_SCOPE_NAMES, AccessScope, Caller, NamePatterns
from penstock.errors import Forbidden, InvalidRequest

MAX_PATTERNS, MAX_PATTERN_LENGTH = 100, 255

_SCOPES_BY_NAME = {name: scope for scope, name in ACCESS_SCOPE_NAMES.items()}


def parse_access(names: list[str]) -> AccessScope:
    """Return the scopes with these names. Raises InvalidRequest for an unknown name and for none."""
    access = AccessScope(0)
    for name in names:
        if name not in _SCOPES_BY_NAME:
            raise InvalidRequest(
                f"Unknown scope {name[:50]!r}. The scopes are {', '.join(_SCOPES_BY_NAME)}.", field="scopes"
            )
        access |= _SCOPES_BY_NAME[name]
    if not access:
        raise InvalidRequest(
            f"The token has no scope. Send at least one of {', '.join(_SCOPES_BY_NAME)}.", field="scopes"
        )
    return access


def access_names(access: AccessScope) -> list[str]:
    """Return the names of the scopes in their usual order."""
    return [name for scope, name in ACCESS_SCOPE_NAMES.items() if scope in access]


def parse_patterns(field: str, patterns: list[str] | None) -> NamePatterns | None:
    """Return the patterns; None: every name. Raises InvalidRequest for an empty list or pattern."""
    if patterns is None:
        return None
    if not 0 < len(patterns) <= MAX_PATTERNS:
        raise InvalidRequest(
            f"{field} must have 1 to {MAX_PATTERNS} patterns. Leave it out to allow every name.", field=field
        )
    for pattern in patterns:
        if not pattern or len(pattern) > MAX_PATTERN_LENGTH or not pattern.isprintable():
            raise InvalidRequest(
                f"A pattern in {field} is not valid: it must have 1 to {MAX_PATTERN_LENGTH} printable "
                "characters, in which * stands for any.",
                field=field,
            )
    return NamePatterns(tuple(patterns))


def check_rights(
    caller: Caller,
    access: AccessScope,
    queues: NamePatterns | None,
    groups: NamePatterns | None,
    is_platform_admin: bool,
) -> None:
    """Raise Forbidden if a token with these rights could do what the caller cannot."""
    missing = access_names(access & ~caller.access)
    if missing:
        raise Forbidden(f"The token has the scope {missing[0]}, which your access lacks.", scope=missing[0])
    if is_platform_admin and not caller.is_platform_admin:
        raise Forbidden("Only a platform administrator can create or change tokens of administrators.")
    _check_patterns("queues", caller.queues, queues)
    _check_patterns("groups", caller.groups, groups)


def check_quotas_within(caller: Caller, quotas: Mapping[str, float]) -> None:
    """Raise Forbidden if a token with these quotas could use more than the caller's token."""
    for name, limit in caller.token_quotas.items():
        if quotas.get(name, math.inf) > limit:
            raise Forbidden(
                f"Your token has the quota {name} {limit:g}. The new token needs it, too, and no higher one."
            )


def _check_patterns(field: str, allowed: NamePatterns | None, requested: NamePatterns | None) -> None:
    if allowed is None:
        return
    # A `*` of the requested pattern is matched by a `*` of an allowed one only, so all its names match too.
    if requested is None or not all(map(allowed.matches, requested.patterns)):
        raise Forbidden(f"Your access is limited to the {field} {allowed}. The token must be, too.")
