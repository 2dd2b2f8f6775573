"""Name all modules of a console page in its HTML, so that the browser requests them at once.

Otherwise a browser requests a module, parses it, requests its imports, and so on: one round trip per level of
imports. The list comes from the modules themselves, so it needs neither upkeep nor a build step.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from posixpath import dirname, join, normpath

from penstock.api.console_files import FileContent, compress_content

ENTRY = "js/main.js"
ROUTES = "js/routes.js"

_IMPORT = re.compile(r"""^(?:import|export)\b[^"';]*?\bfrom\s*["'](\.{1,2}/[^"']+)["']""", re.MULTILINE)
_ROUTE = re.compile(r"""\bpath:\s*"([^"]+)"(?:(?!\bpath:).)*?\bimport\("(\./[^"]+)"\)""", re.DOTALL)


def read_page(directory: Path, url_path: str) -> FileContent:
    """Return `index.html` for the page at this path. The first call for a page reads its modules."""
    pages = read_routes(directory)
    pattern = next((pattern for pattern in pages if _matches(pattern, url_path)), None)
    entries = (ENTRY,) if pattern is None else (ENTRY, pages[pattern])
    return _build_page(directory, (directory / "index.html").stat().st_mtime_ns, entries)


@lru_cache(maxsize=8)
def read_routes(directory: Path) -> dict[str, str]:
    """Return the module of each page by the pattern of its path."""
    text = (directory / ROUTES).read_text()
    return {pattern: _resolve(ROUTES, module) for pattern, module in _ROUTE.findall(text)}


def find_modules(directory: Path, entries: tuple[str, ...]) -> list[str]:
    """Return these modules and all that they import, directly or not. Dynamic imports do not count."""
    modules: dict[str, None] = {}
    remaining = list(entries)
    while remaining:
        module = remaining.pop(0)
        if module not in modules:
            modules[module] = None
            text = (directory / module).read_text()
            remaining += [_resolve(module, imported) for imported in _IMPORT.findall(text)]
    return list(modules)


@lru_cache(maxsize=100)
def _build_page(directory: Path, modified_ns: int, entries: tuple[str, ...]) -> FileContent:
    """The time is part of the key, so that a changed page is read again."""
    links = "".join(
        f'  <link rel="modulepreload" href="/static/{module}">\n'
        for module in find_modules(directory, entries)
    )
    html = (directory / "index.html").read_text()
    return compress_content(html.replace("</head>", f"{links}</head>", 1).encode())


def _resolve(module: str, imported: str) -> str:
    return normpath(join(dirname(module), imported))


def _matches(pattern: str, url_path: str) -> bool:
    expected, actual = pattern.strip("/").split("/"), url_path.strip("/").split("/")
    return len(expected) == len(actual) and all(
        segment.startswith(":") or segment == text for segment, text in zip(expected, actual, strict=True)
    )
