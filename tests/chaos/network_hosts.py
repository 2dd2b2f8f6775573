"""Hosts of a small network: a network namespace each, with one link to clients and one to servers.

    clients, HAProxy ── front bridge ──┬── host 1 ──┬── back bridge ── PostgreSQL, Valkey
                                       ├── host 2 ──┤
                                       └── host 3 ──┘

The bridges are in the namespace of the test, which has the last address of both networks. A link that is cut
drops every packet without a sign to either side, as a failed switch or cable does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.deadlines import deadline_s

PREFIX = "pstk"
GATEWAY = 254
MAX_NUMBER = 255
COMMAND_TIMEOUT_S = 30
LINKS = ("front", "back")

RUN_ON_HOST = 'hostname "$0" && exec "$@"'
"""Gives a process the name of its host, and becomes that process: its pid stays."""


def find_obstacle() -> str | None:
    """Return why this machine cannot have such hosts, or None if it can."""
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None:
        return "network namespaces need root on Linux, and iproute2"
    name = f"{PREFIX}{os.getpid()}-try"
    try:
        _run_ip(f"netns add {name}", f"netns del {name}")
    except subprocess.CalledProcessError as error:
        return f"network namespaces cannot be created here: {error.stderr.strip()}"
    return None


@dataclass(frozen=True, slots=True)
class NetworkHost:
    """One host."""

    name: str
    namespace: str
    number: int
    front_address: str
    back_address: str

    def command(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the command that runs another one on this host."""
        shell = ("unshare", "--uts", "sh", "-c", RUN_ON_HOST, self.name)
        return ("ip", "netns", "exec", self.namespace, *shell, *argv)

    def run_python(self, program: str, *arguments: str) -> str:
        """Run a short program on this host and return what it prints."""
        argv = self.command((sys.executable, "-I", "-S", "-c", program, *arguments))
        result = subprocess.run(
            argv, capture_output=True, text=True, check=True, timeout=deadline_s(COMMAND_TIMEOUT_S)
        )
        return result.stdout


class HostNetwork:
    """Two bridges, and hosts with a link to each."""

    def __init__(self, number: int, host_count: int) -> None:
        self._number = number
        self.hosts = [
            NetworkHost(
                f"host-{host}",
                f"{PREFIX}{os.getpid()}-{host}",
                host,
                self._address("front", host),
                self._address("back", host),
            )
            for host in range(1, host_count + 1)
        ]

    @property
    def front_gateway(self) -> str:
        return self._address("front", GATEWAY)

    @property
    def back_gateway(self) -> str:
        """The address of the servers."""
        return self._address("back", GATEWAY)

    @property
    def back_network(self) -> str:
        return f"{self._address('back', 0)}/24"

    def create(self) -> None:
        bridges = [
            line
            for link in LINKS
            for line in (
                f"link add {self._bridge(link)} type bridge forward_delay 0",
                f"addr add {self._address(link, GATEWAY)}/24 dev {self._bridge(link)}",
                f"link set {self._bridge(link)} up",
            )
        ]
        _run_ip(*bridges)
        for host in self.hosts:
            _run_ip(f"netns add {host.namespace}")
            lines = ["link set lo up"]
            for link in LINKS:
                port = self._port(link, host)
                _run_ip(
                    f"link add {port} type veth peer name {link} netns {host.namespace}",
                    f"link set {port} master {self._bridge(link)} up",
                )
                lines += [
                    f"addr add {self._address(link, host.number)}/24 dev {link}",
                    f"link set {link} up",
                ]
            _run_ip(*lines, namespace=host.namespace)

    def remove(self) -> None:
        """Remove everything that was created. The end of a veth in a namespace goes with the other one."""
        for host in self.hosts:
            for link in LINKS:
                _run_ip(f"link del {self._port(link, host)}", check=False)
            _run_ip(f"netns del {host.namespace}", check=False)
        for link in LINKS:
            _run_ip(f"link del {self._bridge(link)}", check=False)

    def cut(self, host: NetworkHost, *links: str) -> None:
        _run_ip(*(f"link set {self._port(link, host)} down" for link in links))

    def restore(self, host: NetworkHost, *links: str) -> None:
        _run_ip(*(f"link set {self._port(link, host)} up" for link in links))

    def _address(self, link: str, host: int) -> str:
        """Return an address of the networks that are reserved for tests of network devices."""
        return f"198.{18 + LINKS.index(link)}.{self._number}.{host}"

    def _bridge(self, link: str) -> str:
        return f"{PREFIX}{os.getpid()}{link[0]}"

    def _port(self, link: str, host: NetworkHost) -> str:
        return f"{self._bridge(link)}{host.number}"


@contextmanager
def host_network(host_count: int) -> Iterator[HostNetwork]:
    """Create hosts, and remove them at the end. Also removes those of runs that were killed."""
    _remove_leftovers()
    network = HostNetwork(_free_number(), host_count)
    try:
        network.create()
        yield network
    finally:
        network.remove()


def _free_number() -> int:
    """Return the number of networks that this machine does not have. Runs at once begin elsewhere."""
    used = {address.address for addresses in psutil.net_if_addrs().values() for address in addresses}
    numbers: list[int] = [*range(os.getpid() % MAX_NUMBER, MAX_NUMBER), *range(MAX_NUMBER)]
    return next(number for number in numbers if f"198.18.{number}.{GATEWAY}" not in used)


def _remove_leftovers() -> None:
    """Remove namespaces and bridges whose process was killed."""
    directory = Path("/run/netns")
    namespaces = [path.name for path in directory.glob(f"{PREFIX}*")] if directory.is_dir() else []
    for kind, names in (("link", list(psutil.net_if_addrs())), ("netns", namespaces)):
        for name in names:
            owner = re.match(PREFIX + r"(\d+)", name)
            if owner and not psutil.pid_exists(int(owner[1])):
                _run_ip(f"{kind} del {name}", check=False)


def _run_ip(*lines: str, namespace: str | None = None, check: bool = True) -> None:
    """Execute lines of `ip`."""
    options = ("-n", namespace) if namespace else ()
    subprocess.run(
        ("ip", *options, "-batch", "-"),
        input="\n".join(lines) + "\n",
        check=check,
        capture_output=True,
        text=True,
        timeout=deadline_s(COMMAND_TIMEOUT_S),
    )
