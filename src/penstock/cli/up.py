"""`penstock up`: start all components, show their progress, and run until a signal arrives."""

from __future__ import annotations

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

from penstock.access.people.provider_settings import check_provider_settings
from penstock.cli.listing import plain_table
from penstock.cli.server_checks import check_servers_to_migrate
from penstock.cli.tables import component_list, format_address, format_state
from penstock.config import SECRET_URLS, Settings, masked
from penstock.embedded.supervision.component import Component, Program
from penstock.embedded.supervision.platform import build_environment, build_platform
from penstock.embedded.supervision.service_fork import fork_services
from penstock.embedded.supervision.state import PlatformState, RunState
from penstock.embedded.supervision.supervisor import HomeLock, Supervisor, stop_orphans
from penstock.listen_address import check_listen_address
from penstock.log_format import FORMAT_VARIABLE


def run_platform(settings: Settings, demo: bool, create_database: bool) -> None:
    """Run the platform in the foreground until SIGINT, SIGTERM or SIGHUP; leaves no process running."""
    console = Console(highlight=False)
    check_provider_settings(settings)
    warning = check_listen_address(settings)
    if warning is not None:
        console.print(warning, style="yellow", soft_wrap=True)
    lock = HomeLock(settings.home)
    for name in stop_orphans(settings.home):
        console.print(f"Stopped {name}, which an earlier run had left running")
    check_servers_to_migrate(settings, *SECRET_URLS, create_database=create_database)
    platform = build_platform(settings, demo)
    forks = fork_services(
        component.name
        for component in platform.components
        if isinstance(component, Program) and component.starts_early
    )
    environment = build_environment(settings)
    os.environ.update({name: environment[name] for name in ("NO_PROXY", "no_proxy", FORMAT_VARIABLE)})
    display = StartupDisplay(console, platform.url, platform.components, settings.authentication)
    supervisor = Supervisor(
        settings.home,
        platform.components,
        platform.url,
        lock,
        display.print_event,
        display.update,
        settings=masked(platform.settings),
        forks=forks,
    )

    def handle_signal(signum: int, frame: FrameType | None) -> None:
        supervisor.request_stop()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handle_signal)
    with display:
        supervisor.run()
    console.print(f"Stopped. The data stays in {settings.home}")


class StartupDisplay:
    """The output of `penstock up`: a live table during the start, then one line per event.

    Without a terminal it prints lines only.
    """

    def __init__(
        self, console: Console, url: str, components: tuple[Component, ...], authentication: str
    ) -> None:
        self._console = console
        self._url = url
        self._first_steps = first_steps(url, requires_token=authentication == "required")
        self._created_at = time.monotonic()
        self._optional = {component.name for component in components if not component.required}
        self._live = (
            Live(console=console, refresh_per_second=8, transient=True) if console.is_terminal else None
        )
        self._is_started = False
        self._is_stopping = False

    def __enter__(self) -> StartupDisplay:
        if self._live:
            self._live.start()
        else:
            self._console.print("Starting Penstock")
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live:
            self._live.stop()

    def print_event(self, component: str, message: str) -> None:
        """Print what happened to a component, unless the live table shows it."""
        if self._live and (" is up" in message or component == "migrations"):
            return
        self._console.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim] {escape(message)}", soft_wrap=True)

    def update(self, state: PlatformState) -> None:
        """Show the new state of the platform."""
        if any(component.state in (RunState.STOPPING, RunState.STOPPED) for component in state.components):
            self._show_stopping()
        elif not self._is_started:
            if self._start_is_complete(state):
                self._show_started(state)
            elif self._live:
                self._live.update(_startup_table(state, time.monotonic() - self._created_at))

    def _start_is_complete(self, state: PlatformState) -> bool:
        """Return whether every component is up, or is optional and has failed once."""
        return all(
            component.state is RunState.UP
            or (component.state is RunState.DOWN and component.name in self._optional)
            for component in state.components
        )

    def _show_started(self, state: PlatformState) -> None:
        self._is_started = True
        self._stop_live_table()
        elapsed_s = time.monotonic() - self._created_at
        self._console.print(component_list(state.components), crop=False)
        self._console.print(
            f"\nStarted in {elapsed_s:.0f} s. Ctrl-C stops all components.\n"
            f"Console: [bold]{self._url}[/bold]\nGuide: {self._url}/docs/guide\n{escape(self._first_steps)}",
            soft_wrap=True,
        )

    def _show_stopping(self) -> None:
        if self._is_stopping:
            return
        self._is_stopping = True
        self._stop_live_table()
        self._console.print("Stopping … (Ctrl-C again kills the processes that still run)")

    def _stop_live_table(self) -> None:
        if self._live:
            self._live.stop()
            self._live = None


def first_steps(url: str, *, requires_token: bool) -> str:
    """Return a curl command that pushes a message, which a user can paste into a shell.

    Say before it how to get a token, if the broker requires one.
    """
    body = '{"items":[{"queue":"orders","payload":{"hello":"world"}}]}'
    token = ' -H "Authorization: Bearer $PENSTOCK_TOKEN"' if requires_token else ""
    push = f"curl -X POST {url}/api/v1/push -H 'Content-Type: application/json'{token} -d '{body}'"
    if not requires_token:
        return f"Push a message: {push}"
    return (
        "Create the first token: penstock tokens create --admin; export its secret as PENSTOCK_TOKEN\n"
        f"Push a message: {push}"
    )


def _startup_table(state: PlatformState, elapsed_s: float) -> RenderableType:
    table: Table = plain_table("Component", "State", "Address")
    for component in state.components:
        is_starting = component.state is RunState.STARTING
        state_cell: RenderableType = (
            Spinner("dots", Text("starting", "yellow")) if is_starting else format_state(component)
        )
        table.add_row(component.name, state_cell, format_address(component))
    return Group(table, Text(f"Starting Penstock … {elapsed_s:.0f} s", style="dim"))
