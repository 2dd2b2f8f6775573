"""Fixtures of an application that all tests of a module share: starting one takes longer than most tests.

A module takes them by assignment: `shared_settings, app = shared_app.shared_settings, shared_app.app`. Then
each of its tests uses its own queues. Tests of other settings or of all queues start their own application.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio
from fastapi import FastAPI

from penstock.api.app import create_app
from penstock.config import Settings
from tests.integration.api.http.raw_connections import RunningServer, run_server
from tests.integration.api.server_settings import build_settings
from tests.integration.databases import cloned_database
from tests.redis_databases import RedisDatabases


@pytest_asyncio.fixture(scope="module")
async def shared_settings(
    postgres_url: str,
    administrator: asyncpg.Connection,
    template: str,
    redis_databases: RedisDatabases,
    clickhouse_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Settings]:
    with redis_databases.reserve() as redis_url:
        async with cloned_database(administrator, postgres_url, template) as database_url:
            home = tmp_path_factory.mktemp("home")
            yield build_settings(home, database_url, redis_url, clickhouse_url)


@pytest_asyncio.fixture(scope="module")
async def app(shared_settings: Settings) -> AsyncIterator[FastAPI]:
    application = create_app(shared_settings)
    async with application.router.lifespan_context(application):
        yield application


@pytest_asyncio.fixture(scope="module")
async def server(shared_settings: Settings) -> AsyncIterator[RunningServer]:
    async with run_server(shared_settings) as running_server:
        yield running_server
