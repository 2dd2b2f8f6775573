"""Authenticate requests that carry a JWT. A JWT is verified once, and then known until it expires."""

from __future__ import annotations

from penstock.access.people.jwt_verifier import LEEWAY_S, JwtVerifier
from penstock.access.people.person import Person, person_from_claims
from penstock.access.people.roles import RoleMapping
from penstock.clock import Clock, system_clock
from penstock.errors import Forbidden

MAX_CACHED_TOKENS = 10_000


class JwtCallers:
    """The senders of JWTs that were verified with the current keys."""

    def __init__(
        self,
        verifier: JwtVerifier,
        *,
        groups_claim: str,
        roles: RoleMapping,
        clock: Clock = system_clock,
    ) -> None:
        self._verifier = verifier
        self._groups_claim = groups_claim
        self._roles = roles
        self._clock = clock
        self._verified: dict[str, tuple[Person, float]] = {}
        """Person and time of expiry by JWT."""
        self._key_version = 0

    def find(self, token: str) -> Person | None:
        """Return the sender of a JWT that was verified before and is still valid."""
        person, expires_at = self._verified.get(token, (None, 0.0))
        return person if expires_at > self._clock() else None

    async def authenticate(self, token: str) -> Person:
        """Verify a JWT and return its sender.

        Raises Unauthorized, Forbidden without a role, and ProviderUnavailable without keys.
        """
        claims = await self._verifier.verify(token)
        self._forget_after_key_change()
        known_person = self.find(token)  # another request may have verified it meanwhile
        if known_person is not None:
            return known_person
        person = person_from_claims(claims, self._groups_claim, self._roles)
        if not person.roles:
            raise Forbidden(
                f"The JWT of {person.name} gives no role. Ask an administrator to give one of its "
                "groups a role in PENSTOCK_OIDC_ROLES."
            )
        if len(self._verified) >= MAX_CACHED_TOKENS:
            self._verified.pop(next(iter(self._verified)))[0].deactivate()
        self._verified[token] = person, claims["exp"] + LEEWAY_S
        return person

    def people(self) -> list[Person]:
        """Return the senders of all known JWTs."""
        return [person for person, _ in self._verified.values()]

    def end_expired(self) -> None:
        """Forget JWTs that expired or lost their key, and end the requests that run with them."""
        self._verifier.keys.refresh_if_due()
        self._forget_after_key_change()
        now = self._clock()
        for token in [token for token, (_, expires_at) in self._verified.items() if expires_at <= now]:
            self._verified.pop(token)[0].deactivate()

    def _forget_after_key_change(self) -> None:
        """Verify all JWTs again when the provider changed its keys: it may have withdrawn one."""
        if self._verifier.keys.version != self._key_version:
            self._key_version = self._verifier.keys.version
            for person, _ in self._verified.values():
                person.deactivate()
            self._verified.clear()
