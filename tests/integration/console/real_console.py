"""The console of a running broker in a real browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, Page

from tests.browser import new_page, report_policy_violations
from tests.deadlines import deadline_s


@asynccontextmanager
async def open_console(browser: Browser, url: str, path: str) -> AsyncIterator[Page]:
    """Open a page of the console. It must neither fail nor violate its content security policy."""
    async with new_page(browser) as page:
        problems: list[str] = []
        page.set_default_timeout(deadline_s(15) * 1000)
        page.on("pageerror", lambda error: problems.append(str(error)))
        report_policy_violations(page, problems)
        await page.goto(f"{url}{path}")
        yield page
        assert not problems, "\n".join(problems)


async def confirm(page: Page, action: str, typed_text: str = "") -> None:
    """Answer the question of the console with the button of this text."""
    dialog = page.get_by_role("dialog")
    if typed_text:
        await dialog.get_by_role("textbox").fill(typed_text)
    await dialog.get_by_role("button", name=action, exact=True).click()
