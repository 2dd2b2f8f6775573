"""How long targets run: a fixed number of inputs in the suite, a share of the time with `make fuzz`."""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest
from _pytest.capture import CaptureManager
from _pytest.terminal import TerminalReporter
from rich.console import Console
from rich.table import Table

PLUGIN_NAME = "long_fuzz_run"
BAR_WIDTH = 30


class Target(Protocol):
    """Code under test with generated inputs."""

    @property
    def name(self) -> str: ...

    @property
    def examples(self) -> int: ...

    def run(self, seed: int | None = None) -> int:
        """Try generated inputs, the same ones without a seed; return their number. Raises if one fails."""


class FuzzRun:
    """The short version: every target tries the same inputs each time."""

    def run(self, target: Target) -> None:
        assert target.run() >= target.examples // 4, "too few inputs were tried"


@dataclass(slots=True)
class TargetResult:
    name: str
    inputs: int = 0
    failures: int = 0
    seconds: float = 0.0


class LongFuzzRun(FuzzRun):
    """Every target gets an equal share of the time, in rounds with other seeds. Failing inputs are saved."""

    def __init__(self, minutes: float, seed: int, folder: Path) -> None:
        self._total_s = minutes * 60
        self._share_s = 0.0
        self._seed = seed
        self._folder = folder
        self._started = time.monotonic()
        self._terminal: TerminalReporter
        self._capture: CaptureManager
        self.results: list[TargetResult] = []

    def run(self, target: Target) -> None:
        result = TargetResult(target.name)
        self.results.append(result)
        started = time.monotonic()
        seed = self._seed
        while not result.failures and (result.seconds < self._share_s or not result.inputs):
            try:
                result.inputs += target.run(seed)
            except Exception as error:
                result.failures += 1
                self._save(target.name, seed, error)
                raise
            finally:
                result.seconds = time.monotonic() - started
                self._show_progress(result)
            seed += 1

    def _save(self, name: str, seed: int, error: Exception) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / f"{name.replace(' ', '-').replace(',', '')}-{seed}.txt"
        file.write_text(
            f"seed {seed}\n" + "".join(traceback.format_exception(error)), errors="backslashreplace"
        )

    def _show_progress(self, result: TargetResult) -> None:
        share = min(1.0, (time.monotonic() - self._started) / self._total_s)
        bar = "█" * round(share * BAR_WIDTH)
        line = f"\r{bar:░<{BAR_WIDTH}} {share:4.0%}  {result.name}: {result.inputs:,} inputs"
        with self._capture.global_and_fixture_disabled():
            self._terminal.write(f"{line:<100}", flush=True)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        targets = sum("fuzz_run" in getattr(item, "fixturenames", ()) for item in session.items)
        self._share_s = self._total_s / max(1, targets)
        plugins = session.config.pluginmanager
        reporter, capture = plugins.get_plugin("terminalreporter"), plugins.get_plugin("capturemanager")
        assert isinstance(reporter, TerminalReporter)
        assert isinstance(capture, CaptureManager)
        self._terminal, self._capture = reporter, capture
        self._started = time.monotonic()

    def pytest_terminal_summary(self) -> None:
        table = Table("Target", title=f"Fuzz, seed {self._seed}")
        for column in ("Inputs", "Failures", "Seconds"):
            table.add_column(column, justify="right")
        for result in self.results:
            table.add_row(result.name, f"{result.inputs:,}", str(result.failures), f"{result.seconds:.0f}")
        console = Console(width=100)
        console.print()
        console.print(table)
        if any(result.failures for result in self.results):
            console.print(f"Failing inputs are in {self._folder}.")
