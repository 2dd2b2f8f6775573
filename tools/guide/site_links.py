"""Check the pages of the built guide: links and anchors exist, and nothing comes from elsewhere or is inline.

The broker's content security policy refuses scripts and styles that are inline or come from another host.
Links to other hosts are not fetched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

BROKER_PATHS = {"/", "/docs"}
"""Pages of the broker outside of the guide."""

LOADED = {"script": "src", "img": "src", "link": "href"}
"""What a browser loads by itself, by tag and attribute."""

LINKS_TO_PAGES = {"next", "prev", "search", "index", "canonical"}
"""Relations of `<link>` that load nothing."""


@dataclass(slots=True)
class PageContent:
    """The ids of a page, what it links to and loads, and what the policy would refuse."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    inline: list[str] = field(default_factory=list)


class PageReader(HTMLParser):
    """Reads the content of one page."""

    def __init__(self) -> None:
        super().__init__()
        self.content = PageContent()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        content = self.content
        content.ids.add(attributes.get("id", ""))
        if tag == "a" and "href" in attributes:
            content.links.append(attributes["href"])
        if tag in LOADED and attributes.get("rel") not in LINKS_TO_PAGES:
            content.loaded.append(attributes.get(LOADED[tag], ""))
        is_inline = tag == "style" or (tag == "script" and "src" not in attributes)
        if is_inline or "style" in attributes or any(name.startswith("on") for name in attributes):
            content.inline.append(f"<{tag}>")


def read_page(path: Path) -> PageContent:
    reader = PageReader()
    reader.feed(path.read_text())
    return reader.content


def find_problems(site: Path) -> list[str]:
    """Return a sentence for each broken link, remote file and inline script or style of the site."""
    pages = {path.resolve(): read_page(path) for path in sorted(site.rglob("*.html"))}
    problems = []
    for path, content in pages.items():
        name = path.relative_to(site.resolve())
        problems += [f"{name}: {tag} is inline" for tag in content.inline]
        problems += [
            f"{name} loads {url} from another host" for url in content.loaded if urlsplit(url).netloc
        ]
        for url in (*content.links, *content.loaded):
            if reason := _broken_reason(path, url, pages):
                problems.append(f"{name} links to {url}: {reason}")
    return problems


def _broken_reason(page: Path, url: str, pages: dict[Path, PageContent]) -> str:
    parts = urlsplit(url)
    if parts.scheme or parts.netloc or parts.path in BROKER_PATHS:
        return ""
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return "no such file"
    if parts.fragment and unquote(parts.fragment) not in pages[target].ids:
        return "no such anchor"
    return ""
