"""Check whether the pipeline may run, before the slow start of Spark."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from redis.exceptions import RedisError

from penstock.config import Settings
from penstock.definitions import MetricDefinition
from penstock.errors import WarehouseUnavailable
from penstock.pipeline.checkpoint import CheckpointInUse, check_files, check_servers, checkpoint_path
from penstock.redis_clients import connect_redis
from penstock.streams.progress import STALE_AFTER_S, is_pipeline_running, read_progress
from penstock.warehouse.clickhouse_client import connect

log = logging.getLogger(__name__)


def check_before_start(settings: Settings, definitions: tuple[MetricDefinition, ...]) -> None:
    """Raise CheckpointUnusable or CheckpointInUse if the pipeline must not run.

    An unreachable server does not delay the start: the pipeline repeats the check when the server answers.
    """
    directories = {definition: checkpoint_path(settings) / definition.name for definition in definitions}
    for definition, directory in directories.items():
        check_files(directory, definition)
    warehouse = connect(settings.clickhouse_url, timeout_s=5)
    with connect_redis(settings.redis_url, socket_timeout=2, socket_connect_timeout=2) as redis:
        try:
            _refuse_second_pipeline(read_progress(settings.redis_url))
            for definition, directory in directories.items():
                check_servers(directory, definition, redis, warehouse)
        except (RedisError, WarehouseUnavailable) as error:
            log.warning("A server is not reachable yet: %s", error)
        finally:
            warehouse.close()


def _refuse_second_pipeline(progress: Mapping[str, object] | None) -> None:
    """Raise CheckpointInUse if another pipeline runs: with two checkpoints, both would count all events."""
    if progress is None or not is_pipeline_running(progress):
        return
    host, pid = progress.get("host"), progress.get("pid")
    if host == os.uname().nodename and (pid == os.getpid() or not _is_running(pid)):
        return
    raise CheckpointInUse(
        f"A pipeline already reads these streams (process {pid} on {host}): two pipelines would count the "
        f"events twice. Stop it first (if it was killed, wait {STALE_AFTER_S:.0f} seconds)"
    )


def _is_running(pid: object) -> bool:
    try:
        os.kill(pid if isinstance(pid, int) else 0, 0)
        # A zombie, which its parent has not collected yet, accepts signals too.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except OSError:
        return True
