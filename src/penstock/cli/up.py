"""`penstock up`: start everything, show how it goes, stay until told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from types import FrameType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from penstock.cli.tables import address_text, parts_table, plain_table, state_text
from penstock.config import Settings
from penstock.embedded.supervision.component import Component
from penstock.embedded.supervision.platform import build_environment, build_platform
from penstock.embedded.supervision.state import PlatformState, State
from penstock.embedded.supervision.supervisor import HomeLock, Supervisor, stop_orphans


def bring_up(settings: Settings, demo: bool) -> None:
    """Run the platform in the foreground until SIGINT, SIGTERM or SIGHUP; leaves no process behind."""
    console = Console(highlight=False)
    lock = HomeLock(settings.home)
    for name in stop_orphans(settings.home):
        console.print(f"Ended {name}, which an earlier run had left behind")
    platform = build_platform(settings, _migrate, demo)
    os.environ.update({name: build_environment(settings)[name] for name in ("NO_PROXY", "no_proxy")})
    screen = Screen(console, platform.url, platform.parts)
    supervisor = Supervisor(settings.home, platform.parts, platform.url, lock, screen.tell, screen.refresh)

    def leave(signum: int, frame: FrameType | None) -> None:
        supervisor.request_stop()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    with screen:
        supervisor.run()
    console.print(f"Stopped. Your data stays in {settings.home}")


def _migrate(settings: Settings) -> list[str]:
    from penstock.broker import store_migrations

    return asyncio.run(store_migrations.migrate(settings))


class Screen:
    """What the user sees: a live table while things start, then lines when something happens.

    Without a terminal there are lines only.
    """

    def __init__(self, console: Console, url: str, parts: tuple[Component, ...]) -> None:
        self._console = console
        self._url = url
        self._began = time.monotonic()
        self._optional = {part.name for part in parts if not part.required}
        self._live = (
            Live(console=console, refresh_per_second=8, transient=True) if console.is_terminal else None
        )
        self._started = False
        self._stopping = False

    def __enter__(self) -> Screen:
        if self._live:
            self._live.start()
        else:
            self._console.print("Starting Penstock")
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live:
            self._live.stop()

    def tell(self, part: str, words: str) -> None:
        """Something happened to a part."""
        if self._live and (" is up" in words or part == "migrations"):
            return  # the table shows it
        self._console.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim] {escape(words)}", soft_wrap=True)

    def refresh(self, state: PlatformState) -> None:
        """The state of the parts has changed."""
        if any(row.state in (State.STOPPING, State.STOPPED) for row in state.parts):
            self._show_stopping()
        elif not self._started:
            if self._settled(state):
                self._show_started(state)
            elif self._live:
                self._live.update(_progress(state, time.monotonic() - self._began))

    def _settled(self, state: PlatformState) -> bool:
        """Everything is up, or what is not up has failed once and the platform works without it."""
        return all(
            row.state is State.UP or (row.state is State.DOWN and row.name in self._optional)
            for row in state.parts
        )

    def _show_started(self, state: PlatformState) -> None:
        self._started = True
        if self._live:
            self._live.stop()
            self._live = None
        took = time.monotonic() - self._began
        self._console.print(parts_table(state.parts))
        self._console.print(
            f"\nUp after {took:.0f} s; Ctrl-C stops everything. "
            f"Open [bold]{self._url}[/bold] and try:  {escape(example(self._url))}",
            soft_wrap=True,
        )

    def _show_stopping(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        if self._live:
            self._live.stop()
            self._live = None
        self._console.print("Stopping … (Ctrl-C again kills what is still running)")


def example(url: str) -> str:
    """A push that can be pasted into a shell."""
    body = '{"items":[{"queue":"orders","payload":{"hello":"world"}}]}'
    return f"curl -X POST {url}/api/v1/push -H 'Content-Type: application/json' -d '{body}'"


def _progress(state: PlatformState, elapsed_s: float) -> RenderableType:
    table: Table = plain_table("Component", "State", "Address")
    for row in state.parts:
        starting = row.state is State.STARTING
        shown: RenderableType = Spinner("dots", Text("starting", "yellow")) if starting else state_text(row)
        table.add_row(row.name, shown, address_text(row))
    return Group(table, Text(f"Starting Penstock … {elapsed_s:.0f} s", style="dim"))
