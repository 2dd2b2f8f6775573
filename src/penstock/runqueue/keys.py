"""Where everything lies in Redis: the only place that builds keys, also for the scripts.

A shard's keys share the hash tag `{penstock:metrics:queue:N}`. That is the whole name of the metric stream
the shard writes to, which has no braces and so hashes as a whole: the stream and the shard lie in one slot.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote, unquote

from penstock.definitions import QUEUE
from penstock.errors import InvalidRequest, UnknownTask
from penstock.ids import new_id_text
from penstock.model import Scope
from penstock.runqueue.task_model import LONGEST_NAME
from penstock.shards import shard_of

OF_SHARD = {"tasks": "tasks", "payloads": "payloads", "timers": "timers", "ready": "ready"}
"""Keys each shard has once, in the order of the scripts' KEYS."""

ONCE_IN_SCRIPTS = {"environments_key": "environments"}
PER_NAME = {
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
"""Keys per environment or queue: what the scripts call their beginning, and the beginning."""

REPAIR_LOCK = "repairing"
SHARDS_KEY = "penstock:run:shards"
WAKE_CHANNEL = "penstock:run:wake"
MOST_SHARDS = 256


def shard_prefix(shard: int) -> str:
    return f"penstock:run:{{{stream_key(shard)}}}:{shard}:"


def stream_key(shard: int) -> str:
    return QUEUE.stream_keys[shard % len(QUEUE.stream_keys)]


@lru_cache(256)
def script_keys(shard: int) -> tuple[str, ...]:
    """KEYS of every script."""
    prefix = shard_prefix(shard)
    return (*(prefix + key for key in OF_SHARD.values()), stream_key(shard))


def lua_names() -> str:
    """The beginnings of the other keys, and the channel, for the scripts."""
    names = {**ONCE_IN_SCRIPTS, **PER_NAME}
    lines = [f'local {name} = prefix .. "{beginning}"' for name, beginning in names.items()]
    return "\n".join([f'local wake_channel = "{WAKE_CHANNEL}"', *lines])


@lru_cache(10_000)
def environment_name(scope: Scope) -> str:
    """The environment in keys. Its three parts are escaped, so no two environments share one."""
    return "/".join(_escape(part) for part in (scope.organization, scope.project, scope.environment))


@lru_cache(10_000)
def queue_name(scope: Scope, queue: str) -> str:
    if not queue or len(queue) > LONGEST_NAME:
        raise InvalidRequest(f"a queue's name has 1 to {LONGEST_NAME} characters, this one {len(queue)}")
    return f"{environment_name(scope)}/{_escape(queue)}"


@lru_cache(10_000)
def read_queue_name(name: str) -> tuple[Scope, str]:
    organization, project, environment, queue = (unquote(part) for part in name.split("/"))
    return Scope(organization, project, environment), queue


def shard_of_environment(scope: Scope, shards: int) -> int:
    return shard_of(environment_name(scope), shards)


def new_task_id(shard: int) -> str:
    return f"{new_id_text()}-{shard}"


def shard_of_task(task_id: str) -> int:
    """The shard a task was enqueued to; it stays there when the number of shards changes."""
    _, dash, shard = task_id.rpartition("-")
    if dash and len(task_id) <= 40 and shard.isascii() and shard.isdigit() and int(shard) < MOST_SHARDS:
        return int(shard)
    raise UnknownTask(f"there is no task {task_id[:100]}: this is not an id that enqueue has given")


def _escape(text: str) -> str:
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise InvalidRequest("a name must be text that can be written as UTF-8") from None
