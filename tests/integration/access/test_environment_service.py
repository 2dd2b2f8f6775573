"""Environments are created, listed, limited and deleted by name."""

from __future__ import annotations

import pytest

from penstock.access.environment_service import Environments
from penstock.access.token_index import TokenIndex
from penstock.alerts.incidents.silence_service import AlertSilences
from penstock.durable import log
from penstock.durable.log import PartitionName
from penstock.durable.pool import Database
from penstock.errors import InvalidRequest, UnknownEnvironment, WrongState
from penstock.model import DEFAULT_SCOPE, Scope

PRODUCTION = Scope("acme", "shop", "production")


async def test_an_environment_is_known_to_brokers_once_it_is_created(
    database: Database, index: TokenIndex
) -> None:
    environments = Environments(database, index.refresh)
    with pytest.raises(UnknownEnvironment):
        index.environment(PRODUCTION)
    created = await environments.create(PRODUCTION, {"queues": 5})
    assert index.environment(PRODUCTION).quotas == {"queues": 5}
    assert created == await environments.get(PRODUCTION)
    page = await environments.list_page(limit=10, offset=0)
    assert [environment.scope for environment in page.environments] == [PRODUCTION, DEFAULT_SCOPE]
    assert page.total == 2
    with pytest.raises(WrongState, match="exists"):
        await environments.create(PRODUCTION, {})


@pytest.mark.parametrize("name", ["", ".", "..", "-x", "a/b", "a b", "é", "x" * 64, "a\0", "%2e"])
async def test_names_that_other_parts_could_not_carry_are_refused(
    database: Database, index: TokenIndex, name: str
) -> None:
    for field in Scope._fields:
        with pytest.raises(InvalidRequest, match=field):
            await Environments(database, index.refresh).create(PRODUCTION._replace(**{field: name}), {})


async def test_quotas_are_replaced(database: Database, index: TokenIndex) -> None:
    environments = Environments(database, index.refresh)
    await environments.create(PRODUCTION, {"queues": 5})
    assert (await environments.set_quotas(PRODUCTION, {"partitions": 7})).quotas == {"partitions": 7}
    with pytest.raises(UnknownEnvironment):
        await environments.set_quotas(Scope("acme", "shop", "staging"), {})


async def test_an_environment_that_is_being_deleted_takes_nothing_new(
    database: Database, index: TokenIndex
) -> None:
    environments = Environments(database, index.refresh)
    await environments.create(PRODUCTION, {})
    described = await environments.delete(PRODUCTION)
    assert described.deletion_requested_at is not None
    assert (await environments.delete(PRODUCTION)).deletion_requested_at == described.deletion_requested_at
    with pytest.raises(UnknownEnvironment):
        index.environment(PRODUCTION)
    with pytest.raises(UnknownEnvironment):
        await log.ensure_partitions(database, PRODUCTION, [PartitionName("q", "p")])
    with pytest.raises(UnknownEnvironment):
        await AlertSilences(database).create(PRODUCTION, {})
    with pytest.raises(WrongState, match="being deleted"):
        await environments.create(PRODUCTION, {})


async def test_nothing_creates_an_environment_by_the_way(database: Database) -> None:
    with pytest.raises(UnknownEnvironment, match="acme/shop/production does not exist"):
        await log.ensure_partitions(database, PRODUCTION, [PartitionName("q", "p")])


async def test_the_default_environment_cannot_be_deleted(database: Database, index: TokenIndex) -> None:
    with pytest.raises(WrongState, match="cannot be deleted"):
        await Environments(database, index.refresh).delete(DEFAULT_SCOPE)
