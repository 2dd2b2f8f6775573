"""Whether PostgreSQL is away: suspected by the first who fails, made sure of, asked for until it is back."""

from __future__ import annotations

import asyncio
import logging
import time

import asyncpg

from penstock.durable.faults import translated
from penstock.errors import DatabaseUnavailable, PenstockError

logger = logging.getLogger(__name__)

ASK_EVERY_S = 0.25
ANSWER_S = 3.0


class Outage:
    """While it lasts, nobody else needs to find out by waiting. One lost connection is no outage."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._asking: asyncio.Task[None] | None = None
        self._asked = asyncio.Event()
        self._since: float | None = None

    @property
    def lasts(self) -> bool:
        return self._since is not None

    @property
    def since_s(self) -> float:
        """For how long it has lasted; 0 if it does not."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    def check(self) -> None:
        """Raise DatabaseUnavailable while it lasts."""
        if self._since is not None:
            raise DatabaseUnavailable(f"PostgreSQL has been away for {self.since_s:.0f} s; retry shortly")

    def suspect(self) -> None:
        """Somebody got no answer: find out whether others would get one."""
        if self._asking is None:
            self._asked.clear()
            self._asking = asyncio.create_task(self._ask(time.monotonic()), name="outage")

    async def confirmed(self) -> bool:
        """Whether there is an outage, after somebody got no answer."""
        self.suspect()
        await self._asked.wait()
        return self.lasts

    async def stop(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
            self._asking = None

    async def _ask(self, started: float) -> None:
        try:
            while not await self._answers():
                if self._since is None:
                    self._since = started
                    logger.warning("PostgreSQL is away")
                self._asked.set()
                await asyncio.sleep(ASK_EVERY_S)
            if self.lasts:
                logger.warning("PostgreSQL is back after %.1f s", self.since_s)
        finally:
            self._since = None
            self._asking = None
            self._asked.set()

    async def _answers(self) -> bool:
        try:
            with translated():
                connection = await asyncpg.connect(self._url, timeout=ANSWER_S, command_timeout=ANSWER_S)
                try:
                    await connection.execute("SELECT 1")
                finally:
                    await connection.close(timeout=ANSWER_S)
        except PenstockError:
            return False
        return True
