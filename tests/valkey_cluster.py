"""A real Valkey cluster of three primaries with a replica each, and sentinels, for tests."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from redis import Redis
from redis.crc import key_slot

from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.valkey import find_valkey_server
from tests.waiting import wait_until

PRIMARIES = 3


@dataclass(slots=True)
class ValkeyNode:
    """One server process."""

    port: int
    process: subprocess.Popen[bytes]
    client: Redis
    id: str = ""

    def call(self, *arguments: str | int) -> Any:
        return self.client.execute_command(*arguments)  # type: ignore[no-untyped-call]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class ValkeyCluster:
    """Six nodes. The first three start as primaries with a third of the slots each."""

    def __init__(self, nodes: list[ValkeyNode]) -> None:
        self.nodes = nodes

    @property
    def url(self) -> str:
        """Names all nodes, so that it works whichever of them lives."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    @property
    def live_nodes(self) -> list[ValkeyNode]:
        return [node for node in self.nodes if node.process.poll() is None]

    def owner_of(self, key: str, *, seen_by: ValkeyNode | None = None) -> ValkeyNode:
        """Return the primary that has the slot of the key, as a live node sees it."""
        slot = key_slot(key.encode())
        observer = seen_by or self.live_nodes[0]
        for first, last, (_, port, *_), *_ in observer.call("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == port)
        raise AssertionError(f"no node has slot {slot}")

    def move_slot(self, key: str, target: ValkeyNode) -> None:
        """Move the slot of the key to another primary, all its keys at once."""
        slot, source = key_slot(key.encode()), self.owner_of(key)
        source.call("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", target.id)
        wait_until(lambda: self.owner_of(key, seen_by=target) is target, 20, "the slot has moved")


@contextmanager
def running_cluster(directory: Path) -> Iterator[ValkeyCluster]:
    nodes: list[ValkeyNode] = []
    try:
        for number in range(2 * PRIMARIES):
            options: dict[str, object] = {
                "cluster-enabled": "yes",
                "cluster-port": any_free_port(),
                "cluster-node-timeout": 2_000,
            }
            nodes.append(start_node(directory / str(number), options))
        _join(nodes)
        yield ValkeyCluster(nodes)
    finally:
        for node in nodes:
            node.client.close()
            node.kill()


def start_node(directory: Path, options: dict[str, object], *, port: int | None = None) -> ValkeyNode:
    """Start a server that keeps its data in memory."""
    directory.mkdir(parents=True, exist_ok=True)
    port = port or any_free_port()
    settings = {"port": port, "bind": "127.0.0.1", "save": "", "repl-diskless-sync-delay": 0, **options}
    return _start(
        directory, port, [arg for key, value in settings.items() for arg in (f"--{key}", str(value))]
    )


def start_sentinel(config: Path, port: int) -> ValkeyNode:
    """Start a sentinel, which rewrites its configuration file."""
    return _start(config.parent, port, [str(config), "--sentinel"])


def _start(directory: Path, port: int, arguments: list[str]) -> ValkeyNode:
    argv = [str(find_valkey_server()), *arguments]
    process = subprocess.Popen(argv, cwd=directory, stdout=subprocess.DEVNULL)
    node = ValkeyNode(port, process, Redis(port=port, socket_timeout=5))
    wait_until(node.client.ping, 10, "the node answers")
    return node


def _join(nodes: list[ValkeyNode]) -> None:
    """Make one cluster of the nodes."""
    first = nodes[0]
    for node in nodes:
        node.id = cast("bytes", node.call("CLUSTER", "MYID")).decode()
        bus_port = int(cast("dict[str, str]", node.client.config_get("cluster-port"))["cluster-port"])
        if node is not first:
            first.call("CLUSTER", "MEET", "127.0.0.1", node.port, bus_port)
    for number, node in enumerate(nodes[:PRIMARIES]):
        begin, end = 16384 * number // PRIMARIES, 16384 * (number + 1) // PRIMARIES - 1
        node.call("CLUSTER", "ADDSLOTSRANGE", begin, end)
    wait_until(lambda: all(_knows_all(node, nodes) for node in nodes), 20, "the nodes know each other")
    for primary, replica in zip(nodes[:PRIMARIES], nodes[PRIMARIES:], strict=True):
        replica.call("CLUSTER", "REPLICATE", primary.id)
    wait_until(lambda: all(_is_ready(node) for node in nodes), 30, "the cluster is complete")


def _knows_all(node: ValkeyNode, nodes: list[ValkeyNode]) -> bool:
    return len(node.call("CLUSTER", "NODES").splitlines()) == len(nodes)


def _is_ready(node: ValkeyNode) -> bool:
    replication = node.client.info("replication")
    is_replicated = replication.get("connected_slaves") == 1 or replication.get("master_link_status") == "up"
    return b"cluster_state:ok" in node.call("CLUSTER", "INFO") and is_replicated
