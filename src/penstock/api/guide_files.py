"""Serve the guide, which is built from docs/ into the package."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from penstock.api.console_files import ConsoleFiles

GUIDE_PATH = "/docs/guide"
NOT_BUILT = "The guide is not built. Run `make docs` in the clone, then reload this page.\n"


async def redirect_to_guide(request: Request) -> Response:
    """Send browsers to the path with a slash: the links of the pages are relative to it."""
    return RedirectResponse(f"{GUIDE_PATH}/")


class GuideFiles(ConsoleFiles):
    """The files of the guide, or how to build them. They may appear and change while the broker runs."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory=directory, html=True, check_dir=False)
        self._index = directory / "index.html"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._index.is_file():
            await super().__call__(scope, receive, send)
        else:
            await PlainTextResponse(NOT_BUILT, status_code=404)(scope, receive, send)
