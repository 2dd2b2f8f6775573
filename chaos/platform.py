"""The platform under test: its supervisor process, its proxies, and the processes that a nemesis may hit."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import msgspec
import psutil

import penstock
from chaos.next_version import InstalledVersion
from chaos.platform_process import PlatformLayout
from chaos.polling import poll
from chaos.proxy import FaultProxy
from chaos.schedule import CLOCK_PARTS
from chaos.stepped_clock import SteppedClock, stepped_clocks
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.postgres import Postgres
from penstock.embedded.supervision.state import RunState, read_state

SERVERS = ("postgres", "valkey", "clickhouse")
START_TIMEOUT_S = 240
STOP_TIMEOUT_S = 60


class NotRecovered(Exception):
    """The platform did not become healthy again in time."""


class ChaosPlatform:
    """A platform in child processes. Clients use `url`, which leads through a proxy."""

    def __init__(
        self,
        folder: Path,
        home: Path,
        proxies: dict[str, FaultProxy],
        clocks: dict[str, SteppedClock],
        layout: PlatformLayout,
    ) -> None:
        self.folder, self.home, self.layout = folder, home, layout
        self.proxies, self.clocks = proxies, clocks
        self._process: subprocess.Popen[bytes] | None = None
        self._code = folder / "code"
        self.switch_version(InstalledVersion(Path(penstock.__file__).parents[1]))
        self.postgres_url = Postgres(home, layout.ports["postgres"]).url

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.proxies['clients'].port}"

    @property
    def supervisor(self) -> psutil.Process:
        assert self._process is not None
        return psutil.Process(self._process.pid)

    def switch_version(self, version: InstalledVersion) -> None:
        """Let every process that starts from now on run this version."""
        self.version = version
        link = self._code.with_suffix(".new")
        link.symlink_to(version.directory)
        link.replace(self._code)

    def start(self) -> None:
        layout_path = self.folder / "layout.json"
        layout_path.write_bytes(msgspec.json.encode(self.layout))
        with (self.folder / "platform.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "chaos.platform_process", str(layout_path)],
                env={name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
                | {"PYTHONPATH": f"{self._code}{os.pathsep}{Path(__file__).parents[1]}"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    async def end_supervisor(self, number: signal.Signals) -> None:
        """Send the signal to the supervisor and wait until it is gone."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            await asyncio.to_thread(self._process.wait, STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise

    async def wait_until_healthy(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return when every component is up and the broker answers. Raises NotRecovered."""
        problem: str | None = None
        async with httpx.AsyncClient(timeout=5) as client:

            async def is_healthy() -> bool:
                nonlocal problem
                problem = await self._find_problem(client)
                return problem is None

            if not await poll(is_healthy, timeout_s):
                raise NotRecovered(f"The platform is not healthy after {timeout_s:.0f} s: {problem}")

    async def _find_problem(self, client: httpx.AsyncClient) -> str | None:
        state = read_state(self.home)
        if state is None:
            return "no supervisor runs"
        down = [f"{part.name} {part.state}" for part in state.components if part.state is not RunState.UP]
        if down:
            return ", ".join(down)
        try:
            response = await client.get(f"http://127.0.0.1:{self.layout.ports['broker']}/health/ready")
        except httpx.HTTPError as error:
            return f"the broker does not answer ({error!r})"
        return None if response.status_code == 200 else response.text

    def find_component(self, name: str) -> psutil.Process | None:
        """Return the leader of a component, or None while it does not run."""
        state = read_state(self.home)
        component = state.find_component(name) if state else None
        if component is None or component.pid is None or not psutil.pid_exists(component.pid):
            return None
        return psutil.Process(component.pid)

    def list_processes(self, name: str) -> list[psutil.Process]:
        """Return the leader of a component and its descendants."""
        leader = self.find_component(name)
        if leader is None:
            return []
        try:
            return [leader, *leader.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


@asynccontextmanager
async def running_platform(
    folder: Path, home: Path, *, pipeline: bool, clocks: bool, webhook_port: int
) -> AsyncIterator[ChaosPlatform]:
    """Start a platform with its logs in `folder` and its data in `home`; stop it at the end of the block."""
    ports = {name: any_free_port() for name in ("broker", *SERVERS)}
    targets = {"clients": ports["broker"], "webhook": webhook_port} | {name: ports[name] for name in SERVERS}
    proxies = {link: FaultProxy(port) for link, port in targets.items()}
    for proxy in proxies.values():
        await proxy.start()
    with stepped_clocks(CLOCK_PARTS if clocks else ()) as platform_clocks:
        layout = PlatformLayout(
            str(home),
            ports,
            {name: proxies[name].port for name in SERVERS},
            pipeline,
            {part: clock.environment for part, clock in platform_clocks.items()},
        )
        platform = ChaosPlatform(folder, home, proxies, platform_clocks, layout)
        try:
            platform.start()
            await platform.wait_until_healthy()
            yield platform
        finally:
            await platform.end_supervisor(signal.SIGTERM)
            for proxy in proxies.values():
                await proxy.close()


def signal_processes(processes: Sequence[psutil.Process], number: signal.Signals) -> int:
    """Send a signal to the processes that still run, and return their number."""
    sent = 0
    for process in processes:
        try:
            process.send_signal(number)
            sent += 1
        except psutil.NoSuchProcess:
            continue
    return sent
