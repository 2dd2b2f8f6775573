"""Sphinx configuration of the guide: the documentation that the broker serves at /docs/guide.

The pages of docs/ are plain Markdown, so that they also work where the repository is browsed. The navigation
consists of the links of docs/index.md.
"""

from __future__ import annotations

import os.path
import re
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NAVIGATION_PAGES = ("index", "decisions/README")
"""Pages whose links to other pages are their entries in the navigation."""

MARKDOWN_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")

project = "Penstock"
html_title = "Penstock"
extensions = ["myst_parser"]
root_doc = "index"
myst_heading_anchors = 4
nitpicky = True
templates_path = ["templates"]
html_static_path = ["static"]
html_css_files = ["guide.css"]
html_favicon = str(ROOT / "src" / "penstock" / "console" / "static" / "icon.svg")
html_theme = "shibuya"
html_copy_source = False
html_use_index = False
html_theme_options = {
    "accent_color": "blue",
    "globaltoc_expand_depth": 0,
    "show_ai_links": False,
    "nav_links": [
        {"title": "Console", "url": "/", "resource": True},
        {"title": "Try the API", "url": "/docs", "resource": True},
    ],
}


def setup(app: Sphinx) -> None:
    """Register what the pages need beyond plain Markdown. Sphinx calls it."""
    app.add_lexer("mermaid", TextLexer)
    app.connect("source-read", prepare_source)


def prepare_source(app: Sphinx, page: str, source: list[str]) -> None:
    """Adapt the Markdown of one page for the site. Sphinx passes the text as a list of one element."""
    text = _unlink_repository_files(page, source[0])
    if page in NAVIGATION_PAGES:
        text += _navigation(text)
    source[0] = text


def _unlink_repository_files(page: str, text: str) -> str:
    """Keep only the text of links to files that are no pages of the site, such as ../CONTRIBUTING.md."""
    directory = (DOCS / page).parent

    def replace(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(directory / link[2].partition("#")[0]))
        is_outside = link[2].startswith("../") and not target.is_relative_to(DOCS)
        return link[1] if is_outside and target.exists() else link[0]

    return MARKDOWN_LINK.sub(replace, text)


def _navigation(text: str) -> str:
    """The table of contents of Sphinx for the links of a page: a part for each of its sections."""
    parts = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE):
        caption = section.partition("\n")[0]
        pages = [
            target for _, target in MARKDOWN_LINK.findall(section) if re.fullmatch(r"[\w/-]+\.md", target)
        ]
        if pages:
            options = ":hidden:\n:titlesonly:" + (f"\n:caption: {caption}" if section is not text else "")
            entries = "\n".join(dict.fromkeys(pages))
            parts.append(f"\n```{{toctree}}\n{options}\n\n{entries}\n```\n")
    return "".join(parts)
