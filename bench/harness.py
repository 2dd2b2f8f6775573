"""What every benchmark needs: interleaved rounds, medians, a table, a JSON file and a plot.

Contestants take turns within a round (A B C, A B C, …), so that whatever else the machine does hits all of
them alike; a ratio is taken inside each round and its median over the rounds is what is reported.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


@dataclass(slots=True)
class Measurement:
    """One contestant in one scenario in one round. `rate` is per second; the rest is whatever was counted."""

    scenario: str
    contestant: str
    round: int
    rate: float
    counts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """A contestant's turn in a scenario: what to prepare, untimed, and what to measure."""

    scenario: str
    contestant: str
    measure: Callable[[int], Awaitable[tuple[float, dict[str, float]]]]


class Results:
    """Everything measured so far, and the medians of it."""

    def __init__(self) -> None:
        self.measurements: list[Measurement] = []
        self.extra: dict[str, Any] = {}

    def of(self, scenario: str, contestant: str) -> list[Measurement]:
        return [m for m in self.measurements if (m.scenario, m.contestant) == (scenario, contestant)]

    def rate(self, scenario: str, contestant: str) -> float | None:
        found = [m.rate for m in self.of(scenario, contestant)]
        return statistics.median(found) if found else None

    def count(self, scenario: str, contestant: str, name: str) -> float | None:
        found = [m.counts[name] for m in self.of(scenario, contestant) if name in m.counts]
        return statistics.median(found) if found else None

    def ratio(self, scenario: str, contestant: str, other: str) -> float | None:
        """The median over the rounds of contestant ÷ other within the round."""
        found = self.ratio_rounds(scenario, contestant, other)
        return statistics.median(found) if found else None

    def ratio_rounds(self, scenario: str, contestant: str, other: str) -> list[float]:
        """The ratio of every round: how far apart they are tells how much the median is worth."""
        others = {m.round: m.rate for m in self.of(scenario, other)}
        return [m.rate / others[m.round] for m in self.of(scenario, contestant) if others.get(m.round)]

    def scenarios(self) -> list[str]:
        return list(dict.fromkeys(m.scenario for m in self.measurements))

    def contestants(self) -> list[str]:
        return list(dict.fromkeys(m.contestant for m in self.measurements))


async def interleave(
    entries: Iterable[Entry], rounds: int, results: Results, progress: Progress | None = None
) -> None:
    """Measure every entry once per round. Entries of one scenario run next to each other."""
    by_scenario: dict[str, list[Entry]] = {}
    for entry in entries:
        by_scenario.setdefault(entry.scenario, []).append(entry)
    total = rounds * sum(map(len, by_scenario.values()))
    task = progress.add_task("measuring", total=total) if progress else None
    for number in range(rounds):
        for scenario, turns in by_scenario.items():
            # The first place goes round, so that nobody always comes after the same neighbour.
            shift = number % len(turns)
            for entry in turns[shift:] + turns[:shift]:
                if progress and task is not None:
                    words = f"round {number + 1}/{rounds}  {scenario}  {entry.contestant}"
                    progress.update(task, description=words, refresh=True)
                rate, counts = await entry.measure(number)
                results.measurements.append(Measurement(scenario, entry.contestant, number, rate, counts))
                if progress and task is not None:
                    progress.update(task, advance=1, refresh=True)


def progress_bar(console: Console) -> Progress:
    """A bar that draws only when told to, so that drawing takes nothing from what is measured."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        auto_refresh=False,
        transient=True,
    )


def environment(packages: Iterable[str] = ()) -> dict[str, Any]:
    """The machine and the versions, without anything that names it."""
    versions = {}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "load_at_start": [round(load, 2) for load in os.getloadavg()],
        "packages": versions,
    }


def write_json(
    directory: Path,
    name: str,
    results: Results,
    ratios: dict[str, float],
    units: dict[str, str],
    environment: dict[str, Any],
) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.json"
    medians: dict[str, dict[str, dict[str, float]]] = {}
    for scenario in results.scenarios():
        for contestant in results.contestants():
            found = results.of(scenario, contestant)
            if found:
                names = dict.fromkeys(name for m in found for name in m.counts)
                medians.setdefault(scenario, {})[contestant] = {
                    "rate": _rounded(results.rate(scenario, contestant)),
                    **{n: _rounded(results.count(scenario, contestant, n)) for n in names},
                }
    document = {
        "ratios": {name: _rounded(value) for name, value in ratios.items()},
        "units": units,
        "medians": medians,
        **results.extra,
        "environment": environment,
        "rounds": [asdict(m) | {"rate": _rounded(m.rate)} for m in results.measurements],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


def table(title: str, heads: list[str], rows: Iterable[list[str]]) -> Table:
    """The first column to the left, numbers to the right."""
    made = Table(title=title, title_justify="left")
    for place, head in enumerate(heads):
        made.add_column(head, justify="right" if place else "left", no_wrap=True)
    for row in rows:
        made.add_row(*row)
    return made


def bars(
    path: Path, title: str, panels: dict[str, dict[str, float]], unit: str, ours: str, columns: int = 3
) -> None:
    """One panel of horizontal bars per scenario, each bar with its value; ours in colour."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    rows = -(-len(panels) // columns)
    tallest = max(map(len, panels.values()))
    figure, axes = pyplot.subplots(rows, columns, figsize=(5.2 * columns, (0.9 + 0.32 * tallest) * rows))
    flat = list(axes.flat) if hasattr(axes, "flat") else [axes]
    for axis, (scenario, values) in zip(flat, panels.items(), strict=False):
        names = list(values)[::-1]
        heights = [values[name] for name in names]
        colours = ["#1f6fb4" if name.startswith(ours) else "#b8bec6" for name in names]
        drawn = axis.barh(names, heights, color=colours)
        axis.bar_label(drawn, [_short(value) for value in heights], padding=3, fontsize=8)
        axis.set_title(scenario, fontsize=10, loc="left")
        axis.set_xlabel(unit, fontsize=8)
        axis.tick_params(labelsize=8)
        axis.set_xlim(0, max(heights) * 1.18)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in flat[len(panels) :]:
        axis.set_visible(False)
    figure.suptitle(title, fontsize=12, x=0.01, ha="left")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _rounded(value: float | None) -> float:
    return float(f"{value or 0.0:.4g}")
