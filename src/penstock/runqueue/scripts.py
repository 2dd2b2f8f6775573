"""The Lua commands: put together from their files, called by their hash.

A command is one file in `lua/commands`; a line `--- @include "name"` stands for `lua/include/name.lua`,
once in a script however often it is asked for. `keys` is not a file: it comes from `keys.py`.
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

from penstock.runqueue.keys import lua_names, script_keys, shard_prefix
from penstock.runqueue.script_errors import translated

_INCLUDE = re.compile(r'^--- @include "([a-z_]+)"$', re.MULTILINE)
_FILES = resources.files("penstock.runqueue").joinpath("lua")


def command_names() -> list[str]:
    return sorted(
        file.name.removesuffix(".lua")
        for file in _FILES.joinpath("commands").iterdir()
        if file.name.endswith(".lua")
    )


def source(kind: str, name: str) -> str:
    """The text of one file, `kind` being commands or include."""
    if (kind, name) == ("include", "keys"):
        return lua_names()
    return _FILES.joinpath(kind, f"{name}.lua").read_text()


@cache
def script(command: str) -> tuple[str, str]:
    """A command with everything it includes, and its hash."""
    included: set[str] = set()

    def resolve(text: str) -> str:
        return _INCLUDE.sub(lambda match: once(match[1]), text)

    def once(name: str) -> str:
        if name in included:
            return ""
        included.add(name)
        return resolve(source("include", name))

    text = resolve(source("commands", command))
    return text, sha1(text.encode(), usedforsecurity=False).hexdigest()


class Scripts:
    """Calls commands on shards. `emit_length`: about how many entries a stream keeps; 0: no metrics."""

    def __init__(self, client: Redis, emit_length: int) -> None:
        self._client = client
        self.emit_length = emit_length

    async def call(self, command: str, shard: int, *arguments: str | bytes | int) -> Any:
        """A command's answer. Raises RedisUnavailable, and what its own errors stand for."""
        keys = script_keys(shard)
        given: Sequence[str | bytes | int] = (*keys, shard_prefix(shard), self.emit_length, *arguments)
        text, digest = script(command)
        with translated():
            try:
                return await self._client.evalsha(digest, len(keys), *given)
            except NoScriptError:  # it has not run: a server that is new, or was restarted
                return await self._client.eval(text, len(keys), *given)

    async def now_ms(self) -> int:
        """Redis's time."""
        with translated():
            seconds, microseconds = await self._client.time()
        return int(seconds) * 1000 + int(microseconds) // 1000
