"""Inject the faults of a schedule into a platform, one after the other, and wait until it has recovered."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable

import psutil

from chaos.disk import SmallDisk
from chaos.history import HistoryWriter
from chaos.platform import ChaosPlatform, signal_processes
from chaos.polling import poll
from chaos.schedule import Fault
from chaos.upgrade import Upgrades

RECOVERY_TIMEOUT_S = 180
FIND_TIMEOUT_S = 20
NOTICE_S = 1.0
"""How long the supervisor may take to notice a fault; until then everything looks healthy."""


class Nemesis:
    """Executes faults. `injected` counts them by kind; `missed` those whose victim did not run."""

    def __init__(self, platform: ChaosPlatform, history: HistoryWriter, disk: SmallDisk | None) -> None:
        self.platform, self._history, self._disk = platform, history, disk
        self.injected: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.clocks_agree_at = 0.0
        """When nothing has a time in the future any more that a stepped clock gave it."""
        self._upgrades = Upgrades(platform)
        self._number = 0

    def close(self) -> None:
        self._upgrades.close()

    async def inject(self, fault: Fault) -> None:
        """Inject a fault, heal it after its duration, and wait until the platform is healthy.

        Raises NotRecovered if it does not become healthy.
        """
        self._number += 1
        number = self._number
        self._history.begin_fault(fault.title, number)
        await asyncio.gather(*(self._inject_kind(kind, fault) for kind in fault.kinds))
        await asyncio.sleep(NOTICE_S)
        await self.platform.wait_until_healthy(RECOVERY_TIMEOUT_S)
        self._history.end_fault(number)

    async def _inject_kind(self, kind: str, fault: Fault) -> None:
        hit = await self._hit(kind, fault)
        (self.injected if hit else self.missed)[kind] += 1

    async def _hit(self, kind: str, fault: Fault) -> bool:
        """Execute a fault and return whether its victim ran."""
        kind, _, activity = kind.partition(" during ")
        victim, _, effect = kind.rpartition(" ")
        if activity:
            return await self._hit_during(activity, kind, fault)
        if kind in ("migration run", "migration killed"):
            await self._upgrades.migrate(fault.choice, kill=effect == "killed")
        elif kind == "rolling upgrade":
            await self._upgrades.upgrade(fault.choice, fault.duration_s)
        elif victim.endswith(" link"):
            await self._disturb_link(victim.removesuffix(" link"), effect, fault)
        elif victim.endswith(" clock"):
            return await self._step_clock(victim.removesuffix(" clock"), fault)
        elif victim == "supervisor":
            await self._end_supervisor(effect)
        elif kind == "disk filled":
            return await self._fill_disk(fault)
        else:
            return await self._signal(kind, fault)
        return True

    async def _hit_during(self, activity: str, kind: str, fault: Fault) -> bool:
        """Execute a fault in the middle of a migration or a rolling upgrade."""
        hit = False

        async def inject() -> None:
            nonlocal hit
            hit = await self._hit(kind, fault)

        if activity == "migration":
            await self._upgrades.migrate(fault.choice, inject)
        else:
            await self._upgrades.upgrade(fault.choice, fault.duration_s, inject)
        return hit

    async def _disturb_link(self, link: str, effect: str, fault: Fault) -> None:
        proxy = self.platform.proxies[link]
        if effect == "cut":
            proxy.cut()
            return
        {
            "delayed": lambda: proxy.delay(fault.delay_ms / 1000),
            "dropped": proxy.drop,
            "refused": proxy.refuse,
        }[effect]()
        await asyncio.sleep(fault.duration_s)
        proxy.heal()

    async def _step_clock(self, part: str, fault: Fault) -> bool:
        """Step a clock, and step it back after the duration: both directions in one fault."""
        clock = self.platform.clocks[part]
        clock.set_offset(fault.step_s)
        await asyncio.sleep(fault.duration_s)
        users = await _find_victims(lambda: self.platform.list_processes(part)[:1])
        hit = any(clock.is_used_by(process) for process in users)
        clock.set_offset(0)
        self.clocks_agree_at = max(self.clocks_agree_at, self._history.now() + fault.step_s)
        return hit

    async def _end_supervisor(self, effect: str) -> None:
        number = signal.SIGKILL if effect == "killed" else signal.SIGTERM
        await self.platform.end_supervisor(number)
        self.platform.start()

    async def _fill_disk(self, fault: Fault) -> bool:
        if self._disk is None:
            return False
        self._disk.fill()
        await asyncio.sleep(fault.duration_s)
        self._disk.free()
        return True

    async def _signal(self, kind: str, fault: Fault) -> bool:
        find, number = self._signals()[kind]
        victims = await _find_victims(find)
        if not victims:
            return False
        several = kind in ("postgres stopped", "pipeline driver stopped")
        chosen = victims if several else [victims[int(fault.choice * len(victims))]]
        hit = signal_processes(chosen, number) > 0
        if number == signal.SIGSTOP:
            await asyncio.sleep(fault.duration_s)
            signal_processes(chosen, signal.SIGCONT)
        return hit

    def _signals(self) -> dict[str, tuple[Callable[[], list[psutil.Process]], signal.Signals]]:
        """Return how to find the victims of each kind, and the signal they get."""
        platform = self.platform

        def leader(name: str) -> Callable[[], list[psutil.Process]]:
            return lambda: platform.list_processes(name)[:1]

        def tree(name: str) -> Callable[[], list[psutil.Process]]:
            return lambda: platform.list_processes(name)

        def matching(name: str, text: str) -> Callable[[], list[psutil.Process]]:
            return lambda: [p for p in platform.list_processes(name)[1:] if text in _command_line(p)]

        sessions = matching("postgres", "postgres: penstock")
        workers = matching("broker", "spawn_main")
        return {
            "broker worker killed": (workers, signal.SIGKILL),
            "broker worker stopped": (workers, signal.SIGSTOP),
            "broker killed": (leader("broker"), signal.SIGKILL),
            "broker restarted": (leader("broker"), signal.SIGTERM),
            "postgres session terminated": (sessions, signal.SIGTERM),
            "postgres backend killed": (sessions, signal.SIGKILL),
            "postgres killed": (leader("postgres"), signal.SIGKILL),
            "postgres shut down at once": (leader("postgres"), signal.SIGQUIT),
            "postgres restarted": (leader("postgres"), signal.SIGINT),
            "postgres stopped": (tree("postgres"), signal.SIGSTOP),
            "valkey killed": (leader("valkey"), signal.SIGKILL),
            "valkey stopped": (leader("valkey"), signal.SIGSTOP),
            "clickhouse killed": (leader("clickhouse"), signal.SIGKILL),
            "clickhouse stopped": (leader("clickhouse"), signal.SIGSTOP),
            "pipeline driver killed": (leader("pipeline"), signal.SIGKILL),
            "pipeline driver stopped": (tree("pipeline"), signal.SIGSTOP),
            "pipeline JVM killed": (matching("pipeline", "org.apache.spark"), signal.SIGKILL),
            "pipeline Python worker killed": (matching("pipeline", "pyspark"), signal.SIGKILL),
            "alerts killed": (leader("alerts"), signal.SIGKILL),
            "alerts stopped": (leader("alerts"), signal.SIGSTOP),
        }


async def _find_victims(find: Callable[[], list[psutil.Process]]) -> list[psutil.Process]:
    """Return the victims as soon as there are some: another fault of a pair may just restart them."""

    async def find_now() -> list[psutil.Process]:
        return find()

    return await poll(find_now, FIND_TIMEOUT_S)


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
