"""Load the Lua commands and call them by hash.

A command is one file in `lua/commands`. A line `--- @include "name"` inserts `lua/include/name.lua`, once
per script however often it is included. The include `keys` is not a file: `keys.py` generates it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from importlib import resources
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from penstock.runqueue.keys import lua_key_names, script_keys, shard_prefix, stream_key
from penstock.runqueue.script_errors import translate_redis_errors

_TIME = "return redis.call('TIME')"
_INCLUDE = re.compile(r'^--- @include "([a-z_]+)"$', re.MULTILINE)
_FILES = resources.files("penstock.runqueue").joinpath("lua")


def command_names() -> list[str]:
    return sorted(
        file.name.removesuffix(".lua")
        for file in _FILES.joinpath("commands").iterdir()
        if file.name.endswith(".lua")
    )


def read_source(folder: str, name: str) -> str:
    """Return the text of one file; `folder` is `commands` or `include`."""
    if (folder, name) == ("include", "keys"):
        return lua_key_names()
    return _FILES.joinpath(folder, f"{name}.lua").read_text()


@cache
def load_script(command: str) -> tuple[str, str]:
    """Return the text of a command with all its includes, and its hash."""
    included: set[str] = set()

    def resolve(text: str) -> str:
        return _INCLUDE.sub(lambda match: include_once(match[1]), text)

    def include_once(name: str) -> str:
        if name in included:
            return ""
        included.add(name)
        return resolve(read_source("include", name))

    text = resolve(read_source("commands", command))
    return text, sha1(text.encode(), usedforsecurity=False).hexdigest()


class Scripts:
    """Calls commands on shards.

    `emit_length`: approximate number of entries a stream keeps; 0: no metrics.
    """

    def __init__(self, client: Redis, emit_length: int) -> None:
        self._client = client
        self.emit_length = emit_length

    async def call(self, command: str, shard: int, *arguments: str | bytes | int) -> Any:
        """Return the reply of a command, whose type is in the header of its Lua file.

        Raises RedisUnavailable, and the errors that the command's header names.
        """
        keys = script_keys(shard)
        keys_and_arguments: Sequence[str | bytes | int] = (
            *keys,
            shard_prefix(shard),
            self.emit_length,
            *arguments,
        )
        text, digest = load_script(command)
        with translate_redis_errors():
            try:
                return await self._client.evalsha(digest, len(keys), *keys_and_arguments)
            except NoScriptError:  # a new or restarted server: the script has not run
                return await self._client.eval(text, len(keys), *keys_and_arguments)

    async def now_ms(self, shard: int) -> int:
        """Return the time by the clock of the Redis that has the shard."""
        with translate_redis_errors():
            seconds, microseconds = await self._client.eval(_TIME, 1, stream_key(shard))
        return int(seconds) * 1000 + int(microseconds) // 1000
