"""The forms of PENSTOCK_REDIS_URL: one server, a Redis Cluster, or a server that Sentinel finds.

`redis://`, `rediss://` and `unix://` name one server. `redis+cluster://host:port,host:port` names some nodes
of a cluster, which tell the others. `redis+sentinel://host:port,host:port/service/database` names sentinels
and the service that they watch. `rediss+cluster` and `rediss+sentinel` are the same with TLS.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote, urlsplit, urlunsplit

CLUSTER_SCHEMES = ("redis+cluster", "rediss+cluster")
SENTINEL_SCHEMES = ("redis+sentinel", "rediss+sentinel")
DEFAULT_PORT, DEFAULT_SENTINEL_PORT = 6379, 26379


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """The parts of a URL.

    `server_url` is an ordinary URL with user, password, database and options; its host is the first node.
    `nodes` are the nodes of a cluster or the sentinels, and empty for one server.
    """

    server_url: str
    nodes: tuple[tuple[str, int], ...] = ()
    service: str = ""
    """The name under which the sentinels watch the server; empty without Sentinel."""

    @property
    def is_cluster(self) -> bool:
        return bool(self.nodes) and not self.service


@lru_cache(64)
def parse_redis_url(url: str) -> RedisAddress:
    """Return the parts of a URL. Raises ValueError, whose text says what is wrong and shows no secret."""
    full_scheme, _, rest = url.partition("://")
    if full_scheme not in CLUSTER_SCHEMES + SENTINEL_SCHEMES:
        return RedisAddress(url)
    # Python's parser refuses several hosts if one of them is an IPv6 address.
    netloc = re.split("[/?#]", rest, maxsplit=1)[0]
    parts = urlsplit("/" + rest.removeprefix(netloc).removeprefix("/"))
    scheme, _, kind = full_scheme.partition("+")
    user, at, hosts = netloc.rpartition("@")
    default_port = DEFAULT_PORT if kind == "cluster" else DEFAULT_SENTINEL_PORT
    nodes = tuple(_parse_node(host, default_port) for host in hosts.split(","))
    service, _, database = parts.path.strip("/").partition("/")
    if kind == "cluster":
        if parts.path.strip("/") not in ("", "0"):
            raise ValueError("a Redis Cluster has the database 0 only")
        service, database = "", "0"
    elif not service:
        raise ValueError("the URL names no service of the sentinels")
    elif database and not database.isdecimal():
        raise ValueError("the database after the service is not a number")
    host, port = nodes[0]
    netloc = f"{user}{at}[{host}]:{port}" if ":" in host else f"{user}{at}{host}:{port}"
    server_url = urlunsplit((scheme, netloc, f"/{database or 0}", parts.query, ""))
    return RedisAddress(server_url, nodes, unquote(service))


def _parse_node(text: str, default_port: int) -> tuple[str, int]:
    node = urlsplit(f"//{text}")
    try:
        port = node.port
    except ValueError:
        port = 0
    if not node.hostname or port == 0:
        raise ValueError("a node has no valid host or port")
    return node.hostname, port or default_port
