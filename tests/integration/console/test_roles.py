"""Every page for every role in a real browser: users see what they may do, it works, and nothing else."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Response, expect

from penstock.access.token_service import NewToken
from penstock.config import Settings
from penstock.durable.pool import Database
from penstock.warehouse.schema_migrations import migrate
from tests.integration.api.broker_tokens import ALL_SCOPES, GuardedBroker, run_guarded_broker
from tests.integration.api.test_declared_access import OPERATIONS
from tests.integration.console import console_broker
from tests.integration.console.console_pages import PAYLOAD, Action, ConsolePage, create_pages
from tests.integration.console.real_console import open_console
from tests.integration.warehouse.conftest import database_url

pytestmark = pytest.mark.browser
shared_settings = console_broker.shared_settings


@dataclass(frozen=True)
class Role:
    scopes: tuple[str, ...]
    is_platform_admin: bool = False
    is_read_only: bool = False

    @property
    def granted(self) -> set[str]:
        """The scopes that the console has."""
        return set(self.scopes) & {"read", "read:payload"} if self.is_read_only else set(self.scopes)

    def may(self, action: Action) -> bool:
        """Whether the broker admits the role to the operation behind the action."""
        needed = {*DECLARED_SCOPES[action.operation], *(["read:payload"] if action.needs_payload else [])}
        is_admitted = self.is_platform_admin or not action.needs_platform_admin
        return needed <= self.granted and is_admitted


ROLES = {
    "viewer": Role(("read",)),
    "operator": Role(("read", "read:payload", "operate")),
    "producer": Role(("read", "produce")),
    "configurer without payloads": Role(("read", "produce", "consume", "operate", "configure")),
    "administrator": Role(tuple(ALL_SCOPES)),
    "platform administrator": Role(tuple(ALL_SCOPES), is_platform_admin=True),
    "read-only console": Role(tuple(ALL_SCOPES), is_platform_admin=True, is_read_only=True),
}
DECLARED_SCOPES = {f"{operation.method} {operation.path}": operation.scopes for operation in OPERATIONS}

ACTION_LINKS = {"New rule", "Change all that match…", "Change messages or tasks…"}
READING_CONTROLS = re.compile(r"Search|Copy|Zoom out|◀|▶|Queue .* ✕|\d+")
"""Buttons that change nothing. A number is a dead letter that is shown."""
SHOWN_CONTROLS = """() => [...document.querySelectorAll("main button, [role=dialog] button, main a")]
    .filter((element) => element.checkVisibility())
    .filter((element) => !element.matches(".sort, .chip, .link, .payload-text, .pager *, [aria-label=Close]"))
    .map((element) => ({ text: element.innerText.trim(), isLink: element.tagName === "A" }))"""
GO_TO = "(path) => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')); }"


@pytest_asyncio.fixture(scope="module")
async def brokers(shared_settings: Settings) -> AsyncIterator[dict[bool, GuardedBroker]]:
    """A broker, and under `True` one of the same cluster whose console is read-only."""
    warehouse_url = database_url(shared_settings.clickhouse_url)
    migrate(warehouse_url)
    settings = shared_settings.model_copy(
        update={
            "clickhouse_url": warehouse_url,
            "metrics_enabled": False,
            "load_management": True,
            "load_wait_s": 60.0,  # a slow machine must not make the broker busy
        }
    )
    async with AsyncExitStack() as stack:
        running = {}
        for is_read_only in (False, True):
            console = "read-only" if is_read_only else "on"
            broker = run_guarded_broker(settings.model_copy(update={"console": console}))
            running[is_read_only] = await stack.enter_async_context(broker)
            await running[is_read_only].services.broker.drain.stop()
            await running[is_read_only].services.broker.load.stop()
        yield running


@pytest_asyncio.fixture(scope="module")
async def creator(brokers: dict[bool, GuardedBroker]) -> AsyncIterator[httpx.AsyncClient]:
    """A platform administrator."""
    token = NewToken(name="creator", scopes=ALL_SCOPES, is_platform_admin=True)
    async with brokers[False].client(await brokers[False].create(token)) as client:
        yield client


@pytest_asyncio.fixture(scope="module")
async def pages(
    brokers: dict[bool, GuardedBroker], creator: httpx.AsyncClient, shared_settings: Settings
) -> dict[str, ConsolePage]:
    """The pages that are only looked at."""
    async with closing_database(shared_settings) as database:
        return await create_pages(brokers[False], creator, database)


@asynccontextmanager
async def closing_database(settings: Settings) -> AsyncIterator[Database]:
    database = Database(settings.postgres_url, 2)
    try:
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def log_in(browser: Browser, broker: GuardedBroker, role: str) -> AsyncIterator[Page]:
    """Log in with a token of the role. No request of the pages may fail."""
    scopes, is_platform_admin = list(ROLES[role].scopes), ROLES[role].is_platform_admin
    token = NewToken(name=f"{role}-{uuid4().hex[:8]}", scopes=scopes, is_platform_admin=is_platform_admin)
    refused: list[str] = []

    def check(response: Response) -> None:
        if response.status >= 400:
            refused.append(f"{response.status} {response.request.method} {response.url}")

    async with open_console(browser, f"http://localhost:{broker.server.port}", "/") as page:
        await page.get_by_label("Token").fill(await broker.create(token))
        await page.get_by_role("button", name="Log in").click()
        await expect(page.get_by_role("heading", level=1, name="Overview")).to_be_visible()
        page.on("response", check)
        yield page
        assert refused == []


async def open_ready(page: Page, console_page: ConsolePage) -> None:
    """Go to a page as its links do, and wait until it has its data."""
    await page.evaluate(GO_TO, console_page.path)
    shown_text = page.locator("main, [role=dialog]").get_by_text(re.compile(console_page.ready_pattern))
    await expect(shown_text.filter(visible=True).first).to_be_visible()
    await expect(page.locator(".state.loading")).to_have_count(0)


async def shown_actions(page: Page) -> set[str]:
    """The texts of the buttons and links that change something, or open a form that does."""
    return {
        control["text"]
        for control in await page.evaluate(SHOWN_CONTROLS)
        if (
            control["text"] in ACTION_LINKS
            if control["isLink"]
            else not READING_CONTROLS.fullmatch(control["text"])
        )
    }


@pytest.mark.parametrize("role_name", ROLES)
async def test_a_role_sees_the_actions_that_it_may_use_and_no_other(
    browser: Browser, brokers: dict[bool, GuardedBroker], pages: dict[str, ConsolePage], role_name: str
) -> None:
    role = ROLES[role_name]
    differences: dict[str, object] = {}
    async with log_in(browser, brokers[role.is_read_only], role_name) as page:
        for name, console_page in pages.items():
            await open_ready(page, console_page)
            allowed = {text for text, action in console_page.actions.items() if role.may(action)}
            shown = await shown_actions(page)
            if shown != allowed:
                differences[name] = {"refused": shown - allowed, "missing": allowed - shown}
            has_payload = PAYLOAD in await page.content()
            if has_payload != (console_page.shows_payload and "read:payload" in role.granted):
                differences[f"payload of {name}"] = has_payload
    assert differences == {}


async def test_an_administrator_changes_no_token_that_may_do_more(
    browser: Browser, brokers: dict[bool, GuardedBroker], pages: dict[str, ConsolePage]
) -> None:
    async with log_in(browser, brokers[False], "administrator") as page:
        await open_ready(page, pages["tokens"])
        row = page.get_by_role("row", name="platform administrator")
        await expect(row.first).to_be_visible()
        await expect(row.get_by_role("button")).to_have_count(0)


@dataclass(frozen=True)
class Click:
    """A click on a button of a page, with the fields and the buttons of the dialog that it opens.

    `leads_to` is the path of the page that the console goes to afterwards.
    """

    page: str
    button: str
    fields: Mapping[str, str] = field(default_factory=dict)
    then: tuple[str, ...] = ()
    leads_to: str = ""


OPERATOR_CLICKS = (
    Click("queue", "Pause"),
    Click("run queue", "Limit", {"Tasks that may run at once": "3"}, ("Save",)),
    Click("message", "Move to dead letters", then=("Move to dead letters",)),
    Click("dead message", "Requeue"),
    Click("jobs", "Cancel job"),
    Click("error group", "Resolve"),
    Click("dead letter", "Requeue"),
    Click("operations", "Cancel", then=("Cancel the operation",)),
    Click("incident", "Acknowledge"),
    Click("rule", "Backtest"),
    Click("deliveries", "Retry"),
    Click("silences", "Delete", then=("Delete",)),
    Click("channels", "Send test"),
)
ADMINISTRATOR_CLICKS = (
    Click("queue", "Configure", {"Retries": "9"}, ("Save",)),
    Click("run queue", "Enqueue a task", then=("Enqueue",)),
    Click("message", "Clone and edit", then=("Push",)),
    Click("rules", "Turn off"),
    Click("rule", "Save", leads_to="**/console/alerts?tab=rules"),
    Click("channels", "Delete", then=("Delete",)),
    Click("tokens", "Rotate", then=("Rotate",)),
    Click("environments", "Quotas", then=("Save",)),
    Click("quotas", "Change the quotas", then=("Save",)),
    Click("audit", "Export"),
)


@pytest.mark.parametrize(
    ("role_name", "clicks"),
    [("operator", OPERATOR_CLICKS), ("platform administrator", ADMINISTRATOR_CLICKS)],
    ids=["operator", "platform administrator"],
)
async def test_what_a_role_sees_works(
    browser: Browser,
    brokers: dict[bool, GuardedBroker],
    creator: httpx.AsyncClient,
    shared_settings: Settings,
    role_name: str,
    clicks: tuple[Click, ...],
) -> None:
    async with closing_database(shared_settings) as database:
        pages = await create_pages(brokers[False], creator, database)
    async with log_in(browser, brokers[False], role_name) as page:
        for click in clicks:
            console_page = pages[click.page]
            await open_ready(page, console_page)
            method, path = console_page.actions[click.button].operation.split()
            pattern = re.compile(re.sub(r"\{\w+\}", "[^/]+", path))

            def is_call(response: Response, method: str = method, pattern: re.Pattern[str] = pattern) -> bool:
                is_path = pattern.fullmatch(urlsplit(response.url).path) is not None
                return is_path and response.request.method == method

            async with page.expect_response(is_call) as call:
                await press(page, click)
            response = await call.value
            assert response.ok, (click, await response.text())
            if click.leads_to:
                await page.wait_for_url(click.leads_to)


async def press(page: Page, click: Click) -> None:
    """Click the button of the page, fill in the dialog that it opens, and click its buttons."""
    text = re.compile(f"^{re.escape(click.button)}( |$)")
    await page.locator("main, [role=dialog]").get_by_role("button", name=text).last.click()
    dialog = page.get_by_role("dialog")
    for label, value in click.fields.items():
        await dialog.get_by_label(label, exact=True).fill(value)
    for button in click.then:
        await dialog.get_by_role("button", name=button, exact=True).click()
