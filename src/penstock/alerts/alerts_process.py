"""The process `penstock alerts run`: evaluate rules and deliver notices until it is stopped.

Several such processes may run in a cluster. One of them evaluates; all of them deliver.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from contextlib import AsyncExitStack

from penstock import program_pages
from penstock.alerts.alerts_heartbeat import HEARTBEAT_INTERVAL_S, heartbeat_path
from penstock.alerts.delivery.sender import Sender
from penstock.alerts.evaluation.evaluator import Evaluator
from penstock.config import Settings, load_settings
from penstock.durable.pool import Database
from penstock.errors import PenstockError
from penstock.log_format import configure_logging
from penstock.private_directories import create_home
from penstock.redis_clients import connect_redis_async
from penstock.runqueue.queue import RunQueues
from penstock.start_gate import wait_for_start
from penstock.warehouse.clickhouse_client import connect

logger = logging.getLogger("penstock.alerts")

SENDER_CONNECTIONS = 2
"""Database connections of the sender: it leases a batch and records results."""


def main() -> None:
    """Run with the settings of the environment. A PenstockError logs one line and sets the exit code."""
    configure_logging(component="alerts")
    try:
        settings = load_settings()
        wait_for_start()
        run(settings)
    except PenstockError as error:
        logger.critical(error.detail)
        sys.exit(error.exit_code)


def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT."""
    configure_logging(settings.log_level, settings.log_format, "alerts")
    asyncio.run(_run(settings))


async def _run(settings: Settings) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as stack:
        warehouse = connect(settings.clickhouse_url, timeout_s=settings.alert_interval_s)
        stack.callback(warehouse.close)
        client = connect_redis_async(settings.redis_url, socket_timeout=5, socket_connect_timeout=2)
        run_queues = RunQueues(settings.redis_url, shards=settings.run_queue_shards)
        evaluator = Evaluator(
            settings.postgres_url, client, warehouse, run_queues, interval_s=settings.alert_interval_s
        )
        stack.push_async_callback(evaluator.close)
        stack.push_async_callback(evaluator.stop)
        database = Database(settings.postgres_url, size=SENDER_CONNECTIONS)
        stack.push_async_callback(database.close)
        sender = Sender.from_settings(database, settings)
        stack.push_async_callback(sender.stop)
        await sender.start()
        await evaluator.start()
        logger.info("Alert rules are evaluated every %g s", settings.alert_interval_s)
        create_home(settings.home)
        program_pages.keep_releasing()
        path = heartbeat_path(settings.home)
        while not stopping.is_set():
            path.touch()
            try:
                async with asyncio.timeout(HEARTBEAT_INTERVAL_S):
                    await stopping.wait()
            except TimeoutError:
                continue


if __name__ == "__main__":
    main()
