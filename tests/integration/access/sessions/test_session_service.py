"""Sessions in PostgreSQL and in the memory of brokers."""

from __future__ import annotations

import asyncio

import pytest

from penstock.access.people.person import Person
from penstock.access.people.roles import RoleMapping
from penstock.access.sessions.session_service import MAX_CACHED_SESSIONS, ConsoleSessions, NewSession
from penstock.durable.access.session_store import SessionStore
from penstock.durable.pool import Database, Row
from penstock.errors import InvalidCsrfToken
from penstock.model import DEFAULT_SCOPE

ROLES = RoleMapping("ops=operator")
ALICE = Person(subject="4711", name="alice", groups=["ops", "staff"], roles=ROLES.roles_of(["ops"]))


class CountingDatabase(Database):
    """Counts the statements."""

    statements = 0

    async def fetch(self, query: str, *args: object) -> list[Row]:
        self.statements += 1
        return await super().fetch(query, *args)


def create_sessions(database: Database, lifetime_s: float = 3600) -> ConsoleSessions:
    return ConsoleSessions(database, ROLES, lifetime_s=lifetime_s)


async def create(sessions: ConsoleSessions) -> NewSession:
    return await sessions.create_for_person(ALICE)


async def test_another_broker_finds_the_person_of_a_session(database: Database) -> None:
    created = await create(create_sessions(database))
    session = await create_sessions(database).find(created.cookie)
    assert session is not None
    assert (session.person, session.csrf_token) == (ALICE, created.session.csrf_token)
    session.check_csrf_token(created.session.csrf_token)
    for wrong in ("", "é", created.cookie):
        with pytest.raises(InvalidCsrfToken):
            session.check_csrf_token(wrong)


async def test_changed_settings_count_for_sessions_that_exist(database: Database) -> None:
    created = await create(create_sessions(database))
    changed = ConsoleSessions(database, RoleMapping("staff=viewer"), lifetime_s=3600)
    session = await changed.find(created.cookie)
    assert session is not None
    assert session.person is not None
    assert session.person.roles == {"default/default/default": "viewer"}


async def test_known_sessions_cost_no_query_and_unknown_ones_share_one(database_url: str) -> None:
    database = CountingDatabase(database_url, 2)
    sessions = create_sessions(database)
    cookies = [(await create(sessions)).cookie for _ in range(3)]
    database.statements = 0
    assert all([await sessions.find(cookie) for cookie in cookies])
    assert database.statements == 0
    other = create_sessions(database)
    results = await asyncio.gather(*(other.find(cookie) for cookie in [*cookies, *map(str, range(500))]))
    assert [session is not None for session in results] == [True] * 3 + [False] * 500
    assert database.statements == 1
    await database.close()


async def test_concurrent_requests_with_a_new_cookie_share_their_session(database: Database) -> None:
    """Each person that requests run with must be known, so that a logout ends the requests."""
    created = await create(create_sessions(database))
    other = create_sessions(database)
    sessions = await asyncio.gather(*(other.find(created.cookie) for _ in range(5)))
    assert len({id(session) for session in sessions}) == 1


async def test_a_session_that_ends_while_it_is_read_is_not_found(database: Database) -> None:
    first, second = create_sessions(database), create_sessions(database)
    created = await create(first)
    finding = asyncio.create_task(second.find(created.cookie))
    await asyncio.sleep(0)
    await first.end(created.cookie)
    await second.refresh(SessionStore(database))
    assert await finding is None


async def test_a_refresh_ends_what_another_broker_has_ended(database: Database) -> None:
    first, second = create_sessions(database), create_sessions(database)
    kept, ended = await create(first), await create(first)
    sessions = [await second.find(new_session.cookie) for new_session in (kept, ended)]
    callers = [session.person.caller_in(DEFAULT_SCOPE) for session in sessions if session and session.person]
    await first.end(ended.cookie)
    await second.refresh(SessionStore(database))
    assert [caller.active for caller in callers] == [True, False]
    assert await second.find(kept.cookie)
    assert await second.find(ended.cookie) is None


async def test_a_logout_raises_the_version_that_brokers_poll(database: Database) -> None:
    sessions = create_sessions(database)
    created = await create(sessions)
    before = await database.fetch("SELECT access_version_v1()")
    await sessions.end(created.cookie)
    after = await database.fetch("SELECT access_version_v1()")
    assert after[0][0] == before[0][0] + 1
    await sessions.end(created.cookie)
    assert (await database.fetch("SELECT access_version_v1()"))[0][0] == after[0][0]


async def test_a_login_deletes_sessions_that_have_ended(database: Database) -> None:
    short = create_sessions(database, lifetime_s=-1)
    for _ in range(3):
        await create(short)
    await create(create_sessions(database))
    assert len(await database.fetch("SELECT hash FROM access_sessions")) == 1


async def test_an_expired_session_ends_in_memory(database: Database) -> None:
    now_s = 0.0
    sessions = ConsoleSessions(database, ROLES, lifetime_s=60, monotonic=lambda: now_s)
    created = await create(sessions)
    assert created.session.person is not None
    caller = created.session.person.caller_in(DEFAULT_SCOPE)
    now_s = 59
    sessions.end_expired()
    assert caller.active
    assert await sessions.find(created.cookie)
    now_s = 61
    sessions.end_expired()
    assert not caller.active


async def test_memory_is_bounded(database: Database) -> None:
    sessions = create_sessions(database)
    created = await create(sessions)
    for number in range(MAX_CACHED_SESSIONS):
        sessions._sessions[str(number).encode()] = created.session
    await create(sessions)
    assert len(sessions._sessions) <= MAX_CACHED_SESSIONS + 1
    assert await sessions.find(created.cookie), "PostgreSQL still has it"
