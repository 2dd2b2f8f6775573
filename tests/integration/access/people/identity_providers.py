"""Start a real OpenID Connect provider, and log people in at its pages."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin

import httpx

from tests.deadlines import deadline_s
from tests.directories import make_directory, memory_directory

PROGRAM = Path(__file__).with_name("canaille_program.py")
PACKAGES = Path(sys.prefix) / "canaille"
CLIENT_ID = "penstock-console"
CLIENT_SECRET = "client secret & more"
PASSWORD = "correct horse battery staple"


@dataclass(frozen=True, slots=True)
class IdentityProviderServer:
    issuer: str
    process: subprocess.Popen[str]

    async def add_redirect_uri(self, redirect_uri: str) -> None:
        """Allow the client to send people back to this address."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{redirect_uri}\n")
        self.process.stdin.flush()
        assert await _read_line(self.process) == redirect_uri


@asynccontextmanager
async def run_identity_provider(*redirect_uris: str) -> AsyncIterator[IdentityProviderServer]:
    """Run Canaille with a client that may be sent back to these addresses."""
    assert PACKAGES.is_dir(), f"Canaille is not in {PACKAGES}: run `make setup-dev`"
    directory = make_directory(memory_directory())
    process = subprocess.Popen(  # noqa: ASYNC220 - it starts at once
        [sys.executable, str(PROGRAM), str(directory / "canaille.sqlite")],
        env={**os.environ, "PYTHONPATH": str(PACKAGES)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        server = IdentityProviderServer(f"http://127.0.0.1:{await _read_line(process)}", process)
        for redirect_uri in redirect_uris:
            await server.add_redirect_uri(redirect_uri)
        yield server
    finally:
        process.kill()
        process.communicate()
        shutil.rmtree(directory)


async def _read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), deadline_s(60))
    assert line, f"Canaille ended with exit code {process.wait()}"
    return line.strip()


class FirstForm(HTMLParser):
    """The action and the fields of the first form of a page that is sent by POST."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.action: str | None = None
        self.fields: dict[str, str] = {}
        self.buttons: list[tuple[str, str]] = []
        self._is_inside = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "form" and self.action is None and attributes.get("method", "").lower() == "post":
            self.action = attributes.get("action", "")
            self._is_inside = True
        elif self._is_inside and tag == "button" and "name" in attributes:
            self.buttons.append((attributes["name"], attributes.get("value", "")))
        elif self._is_inside and tag == "input" and "name" in attributes:
            self.fields[attributes["name"]] = attributes.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._is_inside = False


async def log_in_at_provider(authorization_url: str, user: str, password: str = PASSWORD) -> str:
    """Fill in the pages of the provider as a person does; return the address that it sends the browser to.

    The pages ask for the name, then for the password, then for consent.
    """
    answers = {"login": user, "password": password}
    origin = urljoin(authorization_url, "/")
    async with httpx.AsyncClient(timeout=deadline_s(20)) as browser:
        response = await browser.get(authorization_url)
        for _ in range(10):
            if response.is_redirect:
                target = urljoin(str(response.url), response.headers["location"])
                if not target.startswith(origin):
                    return target
                response = await browser.get(target)
                continue
            form = FirstForm(response.text)
            assert form.action is not None, f"{response.url} has no form: {response.text}"
            fields = {name: answers.get(name, value) for name, value in form.fields.items()}
            fields.update(button for button in form.buttons if button[1] in ("accept", ""))
            address = urljoin(str(response.url), form.action) if form.action else str(response.url)
            response = await browser.post(address, data=fields)
    raise AssertionError(
        f"The login of {user} stopped at {response.url}: {response.status_code} {response.text}"
    )
