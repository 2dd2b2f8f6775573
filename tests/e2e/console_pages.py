"""Every page of the console, with what it shows once its data has arrived."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from playwright.async_api import Page, expect

from tests.deadlines import deadline_s
from tests.e2e.console_shop import Shop

TIMEOUT_MS = deadline_s(60) * 1_000
"""Metrics of the shop may take this long until they are in the charts."""


@dataclass(frozen=True, slots=True)
class ConsolePage:
    """A page, its path for a shop, and selectors that match once it is complete."""

    name: str
    path: Callable[[Shop], str]
    content: tuple[str, ...]
    text: Callable[[Shop], str]


CONSOLE_PAGES = (
    ConsolePage("overview", lambda shop: "/", (".verdict", ".stat svg"), lambda shop: shop.invoices),
    ConsolePage(
        "queues",
        lambda shop: "/console/queues",
        ("tbody tr .sparkline",),
        lambda shop: shop.renders,
    ),
    ConsolePage(
        "charts",
        lambda shop: "/console/queues?view=charts&period=5m",
        ("article .plot.drawn",),
        lambda shop: "orders",
    ),
    ConsolePage(
        "queue",
        lambda shop: f"/console/queues/{shop.invoices}?period=5m",
        (".answer", ".plot.drawn", ".events li"),
        lambda shop: "billing",
    ),
    ConsolePage(
        "run-queue",
        lambda shop: f"/console/queues/{shop.renders}?period=5m",
        (".answer", ".plot.drawn"),
        lambda shop: "5 of 5",
    ),
    ConsolePage(
        "messages",
        lambda shop: f"/console/messages?queue={shop.invoices}&text=customer-3",
        ("tbody tr",),
        lambda shop: "customer-3",
    ),
    ConsolePage(
        "message",
        lambda shop: f"/console/messages/{shop.message_id}",
        (".time-line li", ".plot.drawn"),
        lambda shop: "declined",
    ),
    ConsolePage(
        "dead-letters",
        lambda shop: f"/console/dead-letters?queue={shop.invoices}",
        ("tbody tr .sparkline",),
        lambda shop: "declined",
    ),
    ConsolePage(
        "error-group",
        lambda shop: f"/console/dead-letters/{shop.error_group}?queue={shop.invoices}",
        (".error-text", "tbody tr"),
        lambda shop: "declined",
    ),
    ConsolePage("workers", lambda shop: "/console/workers", ("tbody tr .sparkline",), lambda shop: "MB"),
    ConsolePage("operations", lambda shop: "/console/operations", (".load-bar",), lambda shop: "Journal"),
    ConsolePage("pipeline", lambda shop: "/console/pipeline", (".batch-plot svg",), lambda shop: "Spark"),
    ConsolePage("alerts", lambda shop: "/console/alerts", ("tbody tr",), lambda shop: "backs up"),
    ConsolePage(
        "incident",
        lambda shop: f"/console/alerts?incident={shop.incident_id}",
        (".timeline li", ".cause-figures"),
        lambda shop: shop.invoices,
    ),
    ConsolePage("access", lambda shop: "/console/access", ("tbody tr",), lambda shop: "-reader"),
    ConsolePage(
        "environments", lambda shop: "/console/access?tab=environments", ("tbody tr",), lambda shop: "default"
    ),
    ConsolePage("audit", lambda shop: "/console/access?tab=audit", ("tbody tr",), lambda shop: "tokens"),
)


async def open_page(page: Page, shop: Shop, console_page: ConsolePage) -> None:
    """Open the page and wait until it shows its data."""
    await page.goto(f"{shop.url}{console_page.path(shop)}")
    for selector in console_page.content:
        await expect(page.locator(selector).first).to_be_visible(timeout=TIMEOUT_MS)
    await expect(page.locator(".components .up").first).to_be_visible(timeout=TIMEOUT_MS)
    await expect(page.locator("main")).to_contain_text(console_page.text(shop), timeout=TIMEOUT_MS)


async def take_picture(page: Page, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=file, animations="disabled")
