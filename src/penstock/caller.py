"""The sender of a request: in which environment it acts, and what it may do there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from fnmatch import translate
from functools import lru_cache
from hashlib import sha256
from typing import Any, Protocol

from penstock.errors import QuotaExceeded, Unauthorized
from penstock.model import DEFAULT_SCOPE, CreationLimits, Scope

MAX_CACHED_NAMES = 10_000


class AccessScope(IntFlag):
    """What a token or a role allows. `model.Scope` has another meaning: the environment."""

    READ = 1
    READ_PAYLOAD = 2
    PRODUCE = 4
    CONSUME = 8
    OPERATE = 16
    CONFIGURE = 32
    ADMIN = 64


ALL_ACCESS = AccessScope(127)

ACCESS_SCOPE_NAMES: dict[AccessScope, str] = {
    AccessScope.READ: "read",
    AccessScope.READ_PAYLOAD: "read:payload",
    AccessScope.PRODUCE: "produce",
    AccessScope.CONSUME: "consume",
    AccessScope.OPERATE: "operate",
    AccessScope.CONFIGURE: "configure",
    AccessScope.ADMIN: "admin",
}
"""The names in tokens, roles and error messages."""


class NamePatterns:
    """Names of queues or consumer groups that a caller is limited to; `*` stands for any characters."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self.patterns = patterns
        escaped = (re.sub(r"[\[\]?]", lambda match: f"[{match[0]}]", pattern) for pattern in patterns)
        expression = re.compile("|".join(translate(pattern) for pattern in escaped))
        self.matches = lru_cache(MAX_CACHED_NAMES)(lambda name: expression.match(name) is not None)
        """Whether a name matches one of the patterns."""

    def __str__(self) -> str:
        return ", ".join(self.patterns)


class CallerQuotas(Protocol):
    """The quotas of a caller's token and environment; `penstock.access.quotas` enforces them.

    What is beyond a quota raises QuotaExceeded and counts nothing.
    """

    limits_bytes: bool
    limits_queues: bool
    limits_storage: bool
    """Whether `add_bytes`, `check_run_queue` and `admit_messages` have anything to check."""

    @property
    def creation_limits(self) -> CreationLimits | None: ...

    def admit_request(self, size: int, connection: Any) -> None: ...

    def add_bytes(self, size: int) -> None: ...

    def admit_messages(self, messages: int, size: int) -> None: ...

    def check_run_queue(self, run_queues: int) -> None: ...

    def start_waiting(self) -> CountedWait: ...

    def creation_refusal(self, quota: str) -> QuotaExceeded: ...


class CountedWait(Protocol):
    """A waiting pop that counts until `end`, which may be called twice."""

    def end(self) -> None: ...


@dataclass(slots=True, eq=False, weakref_slot=True)
class Caller:
    """An authenticated sender of requests in one environment. It lives as long as its token is cached."""

    environment: Scope
    access: AccessScope
    subject: str
    """`local`, `token:NAME` or `user:SUBJECT`."""

    queues: NamePatterns | None = None
    """None: every queue."""
    groups: NamePatterns | None = None
    token_id: str | None = None
    token_number: int = 0
    is_platform_admin: bool = False
    token_quotas: Mapping[str, float] = field(default_factory=dict)
    """Limits of the token, by the name of the quota."""
    active: bool = True
    """False once the token is revoked or expired. Hot requests check this attribute alone."""
    was_used: bool = False
    """Whether a request came since the use of the token was last recorded. Hot requests only set it."""
    quotas: CallerQuotas | None = field(init=False, default=None)
    """None: no quota applies. Hot requests check this attribute alone."""
    has_known_quotas: bool = field(init=False, default=False)
    """Whether `quotas` was set, and is kept up to date."""
    lease_prefix: str = field(init=False)
    """The high 64 bits of every lease id that this caller gets, as text: 32 bits of its environment, then the
    number of its token."""

    def __post_init__(self) -> None:
        number = f"{self.token_number:08x}"
        self.lease_prefix = f"{environment_prefix(self.environment)}{number[:4]}-{number[4:]}-"

    def may(self, access: AccessScope) -> bool:
        return access in self.access


@lru_cache(MAX_CACHED_NAMES)
def environment_prefix(environment: Scope) -> str:
    """Return the beginning of every lease id of an environment: 32 bits of a hash of its name.

    So a lease id tells its environment without a query.
    """
    return f"{sha256('/'.join(environment).encode()).hexdigest()[:8]}-"


def token_ended() -> Unauthorized:
    """The error of a request whose token was revoked or expired before the response."""
    return Unauthorized("The token was revoked or has expired. Send another token.", challenge="Bearer")


LOCAL_CALLER = Caller(DEFAULT_SCOPE, ALL_ACCESS, "local", is_platform_admin=True)
"""The sender of every request without credentials while the broker requires none."""
