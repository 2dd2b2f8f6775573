"""A running broker with the console for a module of tests, and its page in a browser.

A module takes the fixtures by assignment: `console = console_broker.console`, `page = console_broker.page`.
Its tests share the page, so each uses its own queues and opens its own URL.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import pytest_asyncio
from playwright.async_api import Browser, Page

from penstock.config import Settings
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.schema_migrations import migrate
from tests.browser import new_page, report_policy_violations
from tests.deadlines import deadline_s
from tests.integration.api.conftest import shared_settings
from tests.integration.api.http.raw_connections import run_server
from tests.integration.warehouse.conftest import database_url
from tests.integration.warehouse.landing_rows import insert_rows, landing_row

__all__ = ["shared_settings"]


@dataclass(frozen=True)
class ConsoleBroker:
    """A broker whose metrics come from rows that tests insert, so that charts are complete until now."""

    url: str
    client: httpx.AsyncClient
    warehouse: Warehouse

    def insert_metrics(self, queue: str, *, minutes: int, depth: int) -> None:
        """Insert one row for each 5 seconds of the last minutes, except the last half minute."""
        now_s = time.time()
        insert_rows(
            self.warehouse,
            *(
                landing_row(now_s - age_s, queue=queue, depth=depth, running=1, wait_ms=(40,), enqueued=5)
                for age_s in range(30, minutes * 60, 5)
            ),
        )


@pytest_asyncio.fixture(scope="module")
async def console(shared_settings: Settings) -> AsyncIterator[ConsoleBroker]:
    url = database_url(shared_settings.clickhouse_url)
    migrate(url)
    warehouse = connect(url)
    settings = shared_settings.model_copy(update={"clickhouse_url": url, "metrics_enabled": False})
    async with run_server(settings) as server:
        base_url = f"http://127.0.0.1:{server.port}"
        async with httpx.AsyncClient(base_url=base_url, timeout=deadline_s(30)) as client:
            yield ConsoleBroker(base_url, client, warehouse)
    warehouse.close()


@pytest_asyncio.fixture(scope="module")
async def page(browser: Browser) -> AsyncIterator[Page]:
    """One page for all tests of a module. Errors of scripts and of the security policy fail them."""
    async with new_page(browser) as page:
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        report_policy_violations(page, errors)
        yield page
        assert errors == []
