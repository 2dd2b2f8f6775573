"""Probe a Redis or Valkey: log in, ask for its version and the rights of the user, then ping it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.exceptions import NoPermissionError
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError

from penstock.errors import ServerUnreachable, ServerUnusable
from penstock.redis_address import parse_redis_url
from penstock.redis_clients import connect_redis
from penstock.supported_servers import PROBE_TIMEOUT_S, REDIS, one_line, user_of

RIGHTS_SCRIPT = "return redis.call('XLEN', KEYS[1])"
RIGHTS_KEY = "penstock:metrics:rights"
"""No program writes this key."""

T = TypeVar("T")


class RedisProbe:
    """The Redis at a URL, over a connection that is kept. Every method raises ServerUnusable.

    `close` may be called twice.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._opened_client: redis.Redis | None = None

    def check(self) -> str | None:
        """Check version and rights; return a warning about a version that is not tested."""
        REDIS.check_url(self.url)
        properties = _pairs_to_dict(self._ask(_say_hello))
        # Valkey calls itself Redis where an operator configured that.
        product = {"valkey": "Valkey"}.get(properties.get("server", ""), "Redis")
        warning = REDIS.check_version(self.url, properties.get("version", "0"), product)
        if properties.get("mode") == "cluster" and not parse_redis_url(self.url).is_cluster:
            raise REDIS.unusable(
                f"{REDIS.describe(self.url)} is a node of a Redis Cluster",
                "Write the URL as redis+cluster://host:port,host:port.",
            )
        if properties.get("role") == "replica":
            raise REDIS.unusable(
                f"{REDIS.describe(self.url)} is a replica, which is read-only", "Name the primary."
            )
        self._ask(lambda client: client.eval(RIGHTS_SCRIPT, 1, RIGHTS_KEY))
        return warning

    def ping(self) -> None:
        """Ask one question. A lost connection is opened again."""
        self._ask(lambda client: client.ping())

    def close(self) -> None:
        if self._opened_client is not None:
            self._opened_client.close()
            self._opened_client = None

    def _ask(self, question: Callable[[redis.Redis], T]) -> T:
        try:
            return question(self._client())
        except (redis.RedisError, OSError, ValueError) as error:
            raise self._to_penstock_error(error) from error

    def _client(self) -> redis.Redis:
        if self._opened_client is None:
            self._opened_client = connect_redis(
                self.url,
                protocol=2,
                decode_responses=True,
                socket_timeout=PROBE_TIMEOUT_S,
                socket_connect_timeout=PROBE_TIMEOUT_S,
                retry=Retry(NoBackoff(), 0),
            )
        return self._opened_client

    def _to_penstock_error(self, error: Exception) -> ServerUnusable:
        user = user_of(self.url, "default")
        text = str(error)
        if isinstance(error, redis.BusyLoadingError):
            return REDIS.starting(self.url, error)
        if isinstance(error, NoPermissionError) or text.startswith("NOPERM"):
            return REDIS.unusable(
                f"user {user} lacks rights ({one_line(error)})",
                f"As an administrator, run: ACL SETUSER {user} ~penstock:* &penstock:* +@all",
            )
        if isinstance(error, redis.AuthenticationError) or "NOAUTH" in text:
            return REDIS.wrong_password(self.url, user)
        if isinstance(error, redis.MaxConnectionsError):
            return REDIS.starting(self.url, error)
        if "Cluster mode is not enabled" in text:
            return REDIS.unusable(
                f"{REDIS.describe(self.url)} is not a node of a Redis Cluster",
                f"Write the URL as {REDIS.example}.",
            )
        if isinstance(error, MasterNotFoundError):
            service = parse_redis_url(self.url).service
            return ServerUnreachable(
                REDIS.setting,
                f"no sentinel knows a primary of the service {service}",
                "Check the hosts and the service in the URL, and that the sentinels run.",
            )
        if isinstance(error, redis.ResponseError) and "unknown command" in text:  # HELLO came with Redis 6
            return REDIS.unusable(
                f"{REDIS.describe(self.url)} is older than version 6", "Use Redis 7 or newer."
            )
        if isinstance(error, redis.ResponseError) and not isinstance(error, redis.InvalidResponse):
            return REDIS.unusable(
                f"{REDIS.describe(self.url)} refuses the connection ({one_line(error)})",
                f"Write the URL as {REDIS.example}.",
            )
        return REDIS.no_answer(
            self.url, "no answer in time" if isinstance(error, redis.TimeoutError) else error
        )


def _say_hello(client: redis.Redis) -> Any:
    """Return the properties of the server; on a cluster, of one of its primaries."""
    if isinstance(client, RedisCluster):
        return client.execute_command("HELLO", target_nodes=client.get_primaries()[0])
    return client.execute_command("HELLO")  # type: ignore[no-untyped-call]


def _pairs_to_dict(reply: Any) -> dict[str, str]:
    """Return the reply of HELLO, which is a map or a list of names and values."""
    if isinstance(reply, dict):
        return {str(name): str(value) for name, value in reply.items()}
    return {str(name): str(value) for name, value in zip(reply[::2], reply[1::2], strict=False)}
