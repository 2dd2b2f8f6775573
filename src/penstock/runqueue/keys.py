"""Names of the Redis keys of run queues. Only this module builds keys, also those used by the scripts.

All keys of a shard share the hash tag `{penstock:metrics:queue:N}`. The tag is the full name of the metric
stream that the shard writes to. That name has no braces, so Redis hashes all of it: the stream and the
shard are in one slot.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote, unquote

from penstock.definitions import QUEUE
from penstock.errors import InvalidRequest, UnknownTask
from penstock.ids import new_id_text
from penstock.model import Scope
from penstock.runqueue.limits import MAX_NAME_LENGTH
from penstock.shards import shard_of

SHARD_KEYS = {"tasks": "tasks", "payloads": "payloads", "timers": "timers", "ready": "ready"}
"""Keys that a shard has once, in the order of the scripts' KEYS."""

ENVIRONMENTS_KEY = {"environments_key": "environments"}
"""The set of environments of a shard: its name in the scripts, and its key."""

KEY_PREFIXES = {
    "environment_of": "environment:",
    "queues_of": "queues:",
    "ring_of": "ring:",
    "oldest_of": "oldest:",
    "queue_of": "queue:",
    "eligible_of": "eligible:",
    "delayed_of": "delayed:",
    "running_of": "running:",
    "dead_of": "dead:",
    "idempotency_of": "idempotency:",
}
"""Prefixes of the keys of an environment or queue: their names in the scripts, and the prefixes."""

REPAIR_LOCK = "repairing"
SHARDS_KEY = "penstock:run:shards"
"""The number of shards."""

SHARD_RECORDS_KEY = f"penstock:run:environments:{{{SHARDS_KEY}}}"
"""The shard of each environment, in the slot of the number of shards."""

WAKE_CHANNEL = "penstock:run:wake"
MAX_SHARDS = 256


def shard_prefix(shard: int) -> str:
    return f"penstock:run:{{{stream_key(shard)}}}:{shard}:"


def stream_key(shard: int) -> str:
    return QUEUE.stream_keys[shard % len(QUEUE.stream_keys)]


@lru_cache(256)
def script_keys(shard: int) -> tuple[str, ...]:
    """Return the KEYS of every script."""
    prefix = shard_prefix(shard)
    return (*(prefix + key for key in SHARD_KEYS.values()), stream_key(shard))


def lua_key_names() -> str:
    """Return Lua code that defines the key prefixes and the wake-up channel for the scripts."""
    names = {**ENVIRONMENTS_KEY, **KEY_PREFIXES}
    lines = [f'local {name} = prefix .. "{key_prefix}"' for name, key_prefix in names.items()]
    return "\n".join([f'local wake_channel = "{WAKE_CHANNEL}"', *lines])


@lru_cache(10_000)
def environment_name(scope: Scope) -> str:
    """Return the environment's name in keys. Its three parts are escaped, so names are unique."""
    return "/".join(_escape(part) for part in (scope.organization, scope.project, scope.environment))


@lru_cache(10_000)
def queue_name(scope: Scope, queue: str) -> str:
    """Return the queue's name in keys."""
    if not queue or len(queue) > MAX_NAME_LENGTH:
        raise InvalidRequest(
            f"A queue's name has 1 to {MAX_NAME_LENGTH} characters; this one has {len(queue)}."
        )
    return f"{environment_name(scope)}/{_escape(queue)}"


@lru_cache(10_000)
def parse_queue_name(name: str) -> tuple[Scope, str]:
    organization, project, environment, queue = (unquote(part) for part in name.split("/"))
    return Scope(organization, project, environment), queue


def shard_of_environment(scope: Scope, shards: int) -> int:
    """Return the shard that an environment gets when this is the number of shards at its first use."""
    return shard_of(environment_name(scope), shards)


def possible_shards(scope: Scope, first_count: int, count: int) -> list[int]:
    """Return the shards that an environment may have, first the one for `first_count` shards."""
    counts = (first_count, *range(count, 0, -1))
    return list(dict.fromkeys(shard_of_environment(scope, shards) for shards in counts))


def new_task_id(shard: int) -> str:
    return f"{new_id_text()}-{shard}"


def shard_of_task(task_id: str) -> int:
    """Return the shard of a task. The id names it, so it stays valid when the number of shards changes."""
    _, dash, shard = task_id.rpartition("-")
    if dash and len(task_id) <= 40 and shard.isascii() and shard.isdigit() and int(shard) < MAX_SHARDS:
        return int(shard)
    raise UnknownTask(f"{task_id[:100]!r} is not a task id. Use an id that enqueue returned.")


def _escape(text: str) -> str:
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise InvalidRequest("The name cannot be encoded as UTF-8.") from None
