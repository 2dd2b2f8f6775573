"""`make pictures`: take the pictures of the README from a running platform with a light load."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

from rich.progress import track

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser import launch_browser  # noqa: E402 - the tests are not installed
from tests.e2e.console_pages import CONSOLE_PAGES, ConsolePage, open_page, take_picture  # noqa: E402
from tests.e2e.console_shop import Shop, demo_load, open_shop  # noqa: E402
from tests.integration.console.real_console import open_console  # noqa: E402
from tests.whole_platform import running_platform  # noqa: E402

IMAGES = ROOT / "docs" / "images"
PICTURES = {
    "overview": next(page for page in CONSOLE_PAGES if page.name == "overview"),
    "queue": ConsolePage(
        "queue",
        lambda shop: "/console/queues/thumbnails?period=30m",
        (".answer", ".plot.drawn"),
        lambda shop: "demo",
    ),
    "message": next(page for page in CONSOLE_PAGES if page.name == "message"),
}


async def take_pictures(shop: Shop) -> None:
    async with launch_browser() as browser:
        for name, console_page in PICTURES.items():
            async with open_console(browser, shop.url, "/") as page:
                await open_page(page, shop, console_page)
                await take_picture(page, IMAGES / f"{name}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=12, help="how long the load runs before the pictures")
    options = parser.parse_args()
    with running_platform() as platform, demo_load(platform):
        for _ in track(range(options.minutes * 60), "Filling the charts"):
            time.sleep(1)
        asyncio.run(take_pictures(open_shop(platform, "shop")))
    print(f"{', '.join(PICTURES)}: in {IMAGES.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
