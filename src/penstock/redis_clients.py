"""Clients of Redis for every form of PENSTOCK_REDIS_URL (see `redis_address`).

A client of a cluster has the methods of a client of one server, and sends each command to the node of its
keys. All keys of a command, transaction or script must then be in one slot: `slot_tag` makes such names.
Errors of a cluster that pass by themselves are ConnectionError, as those of a server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import redis.asyncio
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.cluster import ClusterNode as AsyncClusterNode
from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
from redis.asyncio.connection import parse_url as parse_async_url
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import parse_url
from redis.exceptions import ClusterDownError, ClusterError, RedisClusterException
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry
from redis.sentinel import Sentinel

from penstock.redis_address import RedisAddress, parse_redis_url

MAX_NODE_CONNECTIONS = 1_000
"""Connections of a process to a node of a cluster. Callers bound the calls they make at once."""

Options = dict[str, Any]


@contextmanager
def _as_connection_errors() -> Iterator[None]:
    """Raise what a cluster answers while it fails over or while slots move as ConnectionError."""
    try:
        yield
    except (RedisClusterException, ClusterDownError) as error:
        raise RedisConnectionError(str(error)) from error
    except ClusterError as error:
        raise RedisConnectionError(f"the cluster redirects again and again: {error}") from error


class AsyncClusterClient(AsyncRedisCluster):
    """A client of a cluster that never repeats a command which a node may have executed."""

    async def initialize(self, *args: Any, **kwargs: Any) -> AsyncRedisCluster:
        with _as_connection_errors():
            return await super().initialize(*args, **kwargs)

    async def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        with _as_connection_errors():
            return await super().execute_command(*args, **kwargs)

    async def read_topology(self) -> None:
        """Ask the nodes again which of them have which slots."""
        self._initialize = True
        await self.initialize()


class ClusterClient(RedisCluster):
    """The same for threads."""

    def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        with _as_connection_errors():
            return super().execute_command(*args, **kwargs)  # type: ignore[no-untyped-call]


def connect_redis(url: str, **options: Any) -> Redis:
    """Return a client; it connects with its first command, or to a cluster at once.

    Raises redis.RedisError if no node of the cluster answers.
    """
    address = parse_redis_url(url)
    if not address.nodes:
        return Redis.from_url(url, **options)
    connection = {**options, **_connection_options(parse_url(address.server_url))}  # type: ignore[no-untyped-call]
    if address.is_cluster:
        nodes = [ClusterNode(host, port) for host, port in address.nodes]  # type: ignore[no-untyped-call]
        connection.setdefault("retry", Retry(NoBackoff(), 0))
        connection.pop("db", None)
        with _as_connection_errors():
            cluster = ClusterClient(
                startup_nodes=nodes, require_full_coverage=False, reinitialize_steps=0, **connection
            )
        return cast("Redis", cluster)
    sentinel_options, connection = _split_sentinel_options(connection)
    sentinel = Sentinel(address.nodes, sentinel_kwargs=sentinel_options, **connection)  # type: ignore[no-untyped-call]
    return cast("Redis", sentinel.master_for(address.service))  # type: ignore[no-untyped-call]


def connect_redis_async(url: str, **options: Any) -> AsyncRedis:
    """Return a client; it connects with its first command."""
    address = parse_redis_url(url)
    if not address.nodes:
        return AsyncRedis.from_url(url, **options)
    connection = {**options, **_connection_options(parse_async_url(address.server_url))}
    if address.is_cluster:
        return cast("AsyncRedis", _connect_async_cluster(address, connection))
    sentinel_options, connection = _split_sentinel_options(connection)
    sentinel = redis.asyncio.Sentinel(address.nodes, sentinel_kwargs=sentinel_options, **connection)  # type: ignore[no-untyped-call]
    return cast("AsyncRedis", sentinel.master_for(address.service))


def _connect_async_cluster(address: RedisAddress, connection: Options) -> AsyncClusterClient:
    connection.setdefault("retry", AsyncRetry(NoBackoff(), 0))
    connection.pop("db", None)
    return AsyncClusterClient(
        startup_nodes=[AsyncClusterNode(host, port) for host, port in address.nodes],
        require_full_coverage=False,
        reinitialize_steps=0,  # else every fifth MOVED would close the connections of calls in flight
        max_connections=MAX_NODE_CONNECTIONS,
        **connection,
    )


def is_cluster(client: Redis | AsyncRedis) -> bool:
    return isinstance(client, AsyncRedisCluster | RedisCluster)


def slot_tag(client: Redis | AsyncRedis, text: str) -> str:
    """Return the text as a part of keys that puts all of them into one slot of a cluster.

    One server gets the text itself, so its keys have the names that they always had.
    """
    return f"{{{text}}}" if is_cluster(client) else text


async def read_configs_async(client: AsyncRedis, *names: str) -> list[dict[Any, Any]]:
    """Return these settings of the server, or of every primary of the cluster."""
    if not is_cluster(client):
        return [await client.config_get(*names)]
    replies: Any = await client.config_get(*names, target_nodes=AsyncRedisCluster.PRIMARIES)
    return list(replies.values())


def read_configs(client: Redis, *names: str) -> list[dict[Any, Any]]:
    """Return the same."""
    if not is_cluster(client):
        return [client.config_get(*names)]
    replies: Any = client.config_get(*names, target_nodes=RedisCluster.PRIMARIES)
    return list(replies.values())


def _connection_options(parsed: Any) -> Options:
    """Return the options of the connections to all nodes, without the address of the first one."""
    options = {name: value for name, value in parsed.items() if name not in ("host", "port")}
    if options.pop("connection_class", None) is not None:
        options["ssl"] = True
    return options


def _split_sentinel_options(options: Options) -> tuple[Options, Options]:
    """Return the options of the connections to the sentinels, and to the server.

    The user and the password of the sentinels are the options `sentinel_username` and `sentinel_password`.
    """
    shared = ("socket_timeout", "socket_connect_timeout", "ssl")
    sentinel_options = {name: value for name, value in options.items() if name in shared}
    for name in ("username", "password"):
        if value := options.get(f"sentinel_{name}"):
            sentinel_options[name] = value
    return sentinel_options, {k: v for k, v in options.items() if not k.startswith("sentinel_")}
