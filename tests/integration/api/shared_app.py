"""Fixtures of an application that all tests of a module share: starting one takes longer than most tests.

A module takes them by assignment, `app = shared_app.app`; `conftest.py` has their settings. Then each of its
tests uses its own queues. Tests of other settings or of all queues start their own application.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from fastapi import FastAPI

from penstock.api.app import create_app
from penstock.config import Settings
from penstock.durable.pool import Database
from tests.integration.api.http.raw_connections import RunningServer, run_server


@pytest_asyncio.fixture(scope="module")
async def app(shared_settings: Settings) -> AsyncIterator[FastAPI]:
    application = create_app(shared_settings)
    async with application.router.lifespan_context(application):
        yield application


@pytest_asyncio.fixture(scope="module")
async def server(shared_settings: Settings) -> AsyncIterator[RunningServer]:
    async with run_server(shared_settings) as running_server:
        yield running_server


@pytest_asyncio.fixture
async def database(shared_settings: Settings) -> AsyncIterator[Database]:
    """The database of the application."""
    opened = Database(shared_settings.postgres_url, 5)
    yield opened
    await opened.close()
