"""A Redis connection that returns raw reply bytes, to the server or to the node that has the stream."""

from __future__ import annotations

import socket
from secrets import token_hex
from typing import Any

from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import BusyLoadingError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from penstock.pipeline.source.digits import PADDING
from penstock.redis_clients import connect_redis

_SPARE_BYTES = 1 << 16

MAX_REDIRECTIONS = 5
"""Redirections of one command. More mean that the nodes do not agree yet; a later attempt succeeds."""

TRANSIENT_REPLIES = ("CLUSTERDOWN", "TRYAGAIN")


class RawConnection:
    """Returns raw replies to XRANGE. The Redis client does everything except reading.

    On a cluster it connects to the node of each stream, and follows the stream to another node.
    """

    def __init__(self, redis_url: str) -> None:
        self.client = connect_redis(
            redis_url, protocol=2, socket_timeout=30, socket_connect_timeout=3, retry=Retry(NoBackoff(), 0)
        )
        self._cluster = self.client if isinstance(self.client, RedisCluster) else None
        self._connections: dict[str, Any] = {}
        self._end_token = token_hex(16).encode()
        self._buffer = bytearray(PADDING + 2 * _SPARE_BYTES)

    def xrange(self, key: str, after: str, upto: str, count: int) -> tuple[bytearray, int, int]:
        """Return the reply to XRANGE as `buffer[begin:end]`. An ECHO sent after it marks its end.

        The next call reuses the buffer.
        """
        command = ("XRANGE", key, f"({after}", upto, "COUNT", count)
        connection, is_asking = self._connection_of(key), False
        for _ in range(MAX_REDIRECTIONS):
            end = self._read_reply(connection, command, is_asking=is_asking)
            if self._buffer[PADDING : PADDING + 1] != b"-":
                return self._buffer, PADDING, end
            message = bytes(self._buffer[PADDING + 1 : end]).decode("utf-8", "replace").strip()
            code, *details = message.split()
            if code not in ("MOVED", "ASK") or self._cluster is None:
                raise _to_error(code, message)
            is_asking = code == "ASK"
            host, _, port = details[1].rpartition(":")
            connection = self._connect_to(host, int(port))
        raise RedisConnectionError("The cluster redirects again and again.")

    def close(self) -> None:
        for connection in self._connections.values():
            connection.disconnect()
        self.client.close()

    def _connection_of(self, key: str) -> Any:
        if self._cluster is None:
            if not self._connections:
                self._open("", self.client.connection_pool)
            return self._connections[""]
        node = self._cluster.get_node_from_key(key)
        if node is None:
            raise RedisConnectionError(f"No node of the cluster has the slot of {key}.")
        return self._connect_to(node.host, node.port)

    def _connect_to(self, host: str, port: int) -> Any:
        """Return the connection to a node; a node that the cluster added lately becomes known."""
        assert self._cluster is not None
        name = f"{host}:{port}"
        if name not in self._connections:
            node = self._cluster.get_node(host, port) or ClusterNode(host, port)
            self._open(name, self._cluster.get_redis_connection(node).connection_pool)
        return self._connections[name]

    def _open(self, name: str, pool: Any) -> None:
        connection = pool.get_connection()
        connection.connect()
        self._connections[name] = connection

    def _read_reply(self, connection: Any, command: tuple[Any, ...], *, is_asking: bool) -> int:
        """Send the command, read its reply into the buffer, and return the end of the reply."""
        if is_asking:
            connection.send_command("ASKING")
            connection.read_response()
        connection.send_packed_command(
            connection.pack_commands([command, ("ECHO", self._end_token)]), check_health=False
        )
        receiver: socket.socket = connection._sock
        ending = b"$%d\r\n%s\r\n" % (len(self._end_token), self._end_token)
        buffer, filled = self._buffer, PADDING
        while not (filled >= PADDING + len(ending) and buffer.endswith(ending, PADDING, filled)):
            if len(buffer) - filled < _SPARE_BYTES:
                self._buffer = buffer = buffer + bytes(len(buffer))
            received = receiver.recv_into(memoryview(buffer)[filled:])
            if not received:
                raise RedisConnectionError("Redis closed the connection while a range was being read")
            filled += received
        return filled - len(ending)


def _to_error(code: str, message: str) -> Exception:
    """Return the error of a reply. A server that loads its data, or fails over, answers again later."""
    if code == "LOADING":
        return BusyLoadingError(message)
    if code in TRANSIENT_REPLIES:
        return RedisConnectionError(message)
    return ResponseError(message)
