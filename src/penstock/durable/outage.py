"""Detect an outage of PostgreSQL: a failed call starts a probe, which repeats until the server responds."""

from __future__ import annotations

import asyncio
import logging
import time

from penstock.background import cancel_and_wait
from penstock.durable.faults import translate_errors
from penstock.durable.primary import connect_to_primary
from penstock.errors import DatabaseUnavailable, PenstockError

logger = logging.getLogger(__name__)

PROBE_INTERVAL_S = 0.25
PROBE_TIMEOUT_S = 3.0


class Outage:
    """The state of the server. During an outage calls fail at once instead of waiting for a timeout.

    One lost connection is no outage: a probe on a new connection decides.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._probe_task: asyncio.Task[None] | None = None
        self._probed = asyncio.Event()
        self._started_at: float | None = None
        self.is_active = False

    @property
    def duration_s(self) -> float:
        """How long the outage has lasted; 0 if there is none."""
        return 0.0 if self._started_at is None else time.monotonic() - self._started_at

    def raise_if_active(self) -> None:
        """Raise DatabaseUnavailable during an outage."""
        if self.is_active:
            raise DatabaseUnavailable(
                f"PostgreSQL has been unreachable for {self.duration_s:.0f} s. Retry shortly."
            )

    def suspect(self) -> None:
        """Start a probe after a call got no response."""
        if self._probe_task is None:
            self._probed.clear()
            self._probe_task = asyncio.create_task(self._probe(time.monotonic()), name="outage")

    async def confirm(self) -> bool:
        """Probe the server after a call got no response; whether there is an outage."""
        self.suspect()
        await self._probed.wait()
        return self.is_active

    async def stop(self) -> None:
        if self._probe_task is not None:
            await cancel_and_wait(self._probe_task)
            self._probe_task = None

    async def _probe(self, failed_at: float) -> None:
        try:
            while not await self._responds():
                if self._started_at is None:
                    self._started_at, self.is_active = failed_at, True
                    logger.warning("PostgreSQL is unreachable")
                self._probed.set()
                await asyncio.sleep(PROBE_INTERVAL_S)
            if self.is_active:
                logger.warning("PostgreSQL responds again after %.1f s", self.duration_s)
        finally:
            self._started_at, self.is_active = None, False
            self._probe_task = None
            self._probed.set()

    async def _responds(self) -> bool:
        try:
            with translate_errors():
                connection = await connect_to_primary(
                    self._url, timeout=PROBE_TIMEOUT_S, command_timeout=PROBE_TIMEOUT_S
                )
                try:
                    await connection.execute("SELECT 1")
                finally:
                    await connection.close(timeout=PROBE_TIMEOUT_S)
        except PenstockError:
            return False
        return True
