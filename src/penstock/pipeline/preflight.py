"""What is found out before Spark is started, which takes its time: whether the pipeline may run at all."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from penstock.config import Settings
from penstock.definitions import MetricDefinition
from penstock.errors import WarehouseUnavailable
from penstock.pipeline.checkpoint import CheckpointInUse, check_files, checkpoint_of
from penstock.pipeline.server_identity import check_servers
from penstock.streams.progress import STALE_AFTER_S, is_alive, read_progress
from penstock.warehouse.clickhouse_client import connect

log = logging.getLogger(__name__)


def look_before_start(settings: Settings, definitions: tuple[MetricDefinition, ...]) -> None:
    """Raise CheckpointUnusable or CheckpointInUse if the pipeline must not run here and now.

    Servers that are away are no reason to wait: the pipeline asks them again.
    """
    places = {definition: checkpoint_of(settings) / definition.name for definition in definitions}
    for definition, place in places.items():
        check_files(place, definition)
    warehouse = connect(settings.clickhouse_url, timeout_s=5)
    with Redis.from_url(settings.redis_url, socket_timeout=2, socket_connect_timeout=2) as redis:
        try:
            _refuse_another(read_progress(settings.redis_url))
            for definition, place in places.items():
                check_servers(place, definition, redis, warehouse)
        except (RedisError, WarehouseUnavailable) as error:
            log.warning("a server does not answer yet: %s", error)
        finally:
            warehouse.close()


def _refuse_another(progress: dict[str, Any] | None) -> None:
    """Two pipelines with checkpoints of their own would count the same events twice."""
    if progress is None or not is_alive(progress):
        return
    host, pid = progress.get("host"), progress.get("pid")
    if host == os.uname().nodename and (pid == os.getpid() or not _is_there(pid)):
        return
    raise CheckpointInUse(
        f"process {pid} on {host} carries the events of these streams already: two pipelines would "
        f"count them twice. Stop it first (if it is gone, wait {STALE_AFTER_S:.0f} seconds)"
    )


def _is_there(pid: int | None) -> bool:
    try:
        os.kill(pid or 0, 0)
        # One that has ended and was not yet collected by its parent can be signalled too.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except OSError:
        return True
