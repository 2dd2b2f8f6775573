"""Shared parts of the benchmarks: interleaved rounds, medians, tables, the JSON file and the plot.

Contestants take turns within a round (A B C, A B C, …), so that other load on the machine slows all of them
alike. A ratio is computed within each round, and its median over the rounds is reported.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

RESULTS_DIRECTORY = Path(__file__).parent / "results"


@dataclass(slots=True)
class Measurement:
    """The result of one contestant in one scenario and round: a rate per second and further counts."""

    scenario: str
    contestant: str
    round: int
    rate: float
    counts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """A contestant in a scenario. `measure` takes the round's number and returns a rate and counts."""

    scenario: str
    contestant: str
    measure: Callable[[int], Awaitable[tuple[float, dict[str, float]]]]


class Results:
    """All measurements of a run and their medians. `extra` holds further sections of the JSON file."""

    def __init__(self) -> None:
        self.measurements: list[Measurement] = []
        self.extra: dict[str, Any] = {}

    def select(self, scenario: str, contestant: str) -> list[Measurement]:
        """Return the measurements of a contestant in a scenario, in the order of the rounds."""
        return [m for m in self.measurements if (m.scenario, m.contestant) == (scenario, contestant)]

    def rate(self, scenario: str, contestant: str) -> float | None:
        """Return the median rate, or None if the contestant did not take part."""
        rates = [m.rate for m in self.select(scenario, contestant)]
        return statistics.median(rates) if rates else None

    def count(self, scenario: str, contestant: str, name: str) -> float | None:
        """Return the median of a count, or None if it was not measured."""
        values = [m.counts[name] for m in self.select(scenario, contestant) if name in m.counts]
        return statistics.median(values) if values else None

    def ratio(self, scenario: str, contestant: str, other: str) -> float | None:
        """Return the median over the rounds of contestant ÷ other within the round."""
        rounds = self.ratio_rounds(scenario, contestant, other)
        return statistics.median(rounds) if rounds else None

    def ratio_rounds(self, scenario: str, contestant: str, other: str) -> list[float]:
        """Return the ratio of every round. Their spread shows how reliable the median is."""
        others = {m.round: m.rate for m in self.select(scenario, other)}
        return [m.rate / others[m.round] for m in self.select(scenario, contestant) if others.get(m.round)]

    def scenarios(self) -> list[str]:
        return list(dict.fromkeys(m.scenario for m in self.measurements))

    def contestants(self) -> list[str]:
        return list(dict.fromkeys(m.contestant for m in self.measurements))


async def interleave(
    entries: Iterable[Entry],
    rounds: int,
    results: Results,
    progress: Progress | None = None,
    *,
    first_round: int = 0,
) -> None:
    """Measure every entry once per round. Entries of one scenario run next to each other.

    Rounds are numbered from `first_round`, for entries that take no part in the rounds before it.
    """
    by_scenario: dict[str, list[Entry]] = {}
    for entry in entries:
        by_scenario.setdefault(entry.scenario, []).append(entry)
    total = rounds * sum(map(len, by_scenario.values()))
    task = progress.add_task("measuring", total=total) if progress else None
    for number in range(first_round, first_round + rounds):
        for scenario, scenario_entries in by_scenario.items():
            # Each round starts with another entry, so that no entry always follows the same neighbour.
            shift = number % len(scenario_entries)
            for entry in scenario_entries[shift:] + scenario_entries[:shift]:
                if progress and task is not None:
                    description = f"round {number + 1}/{first_round + rounds}  {scenario}  {entry.contestant}"
                    progress.update(task, description=description, refresh=True)
                rate, counts = await entry.measure(number)
                results.measurements.append(Measurement(scenario, entry.contestant, number, rate, counts))
                if progress and task is not None:
                    progress.update(task, advance=1, refresh=True)


def progress_bar(console: Console) -> Progress:
    """Return a bar that draws only on request, so that drawing takes no time from a measurement."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        auto_refresh=False,
        transient=True,
    )


def add_results_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--results",
        type=Path,
        default=RESULTS_DIRECTORY,
        help="directory of the JSON file and the plot",
    )


def open_console(file_width: int = 120) -> Console:
    """Return the console of a benchmark, with a fixed width where the output is not a terminal."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = file_width
    return console


def print_ratios(console: Console, ratios: Mapping[str, float]) -> None:
    rows = [[name, f"{value:.3g}"] for name, value in ratios.items()]
    console.print(build_table("ratios", ["", ""], rows))


def describe_environment(packages: Iterable[str] = ()) -> dict[str, Any]:
    """Describe the machine and the package versions, without anything that identifies the machine."""
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
    """Write ratios, medians and every round to `directory`/`name`.json and return the path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.json"
    medians: dict[str, dict[str, dict[str, float]]] = {}
    for scenario in results.scenarios():
        for contestant in results.contestants():
            measurements = results.select(scenario, contestant)
            if measurements:
                count_names = dict.fromkeys(count_name for m in measurements for count_name in m.counts)
                medians.setdefault(scenario, {})[contestant] = {
                    "rate": _round_to_4_digits(results.rate(scenario, contestant)),
                    **{n: _round_to_4_digits(results.count(scenario, contestant, n)) for n in count_names},
                }
    document = {
        "ratios": {ratio_name: _round_to_4_digits(value) for ratio_name, value in ratios.items()},
        "units": units,
        "medians": medians,
        **results.extra,
        "environment": environment,
        "rounds": [asdict(m) | {"rate": _round_to_4_digits(m.rate)} for m in results.measurements],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


def build_table(title: str, heads: list[str], rows: Iterable[list[str]]) -> Table:
    """Build a table whose first column is left-aligned and whose other columns are right-aligned."""
    table = Table(title=title, title_justify="left")
    for index, head in enumerate(heads):
        table.add_column(head, justify="right" if index else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def plot_bars(
    path: Path, title: str, panels: dict[str, dict[str, float]], unit: str, ours: str, columns: int = 3
) -> None:
    """Draw one panel of labelled horizontal bars per scenario.

    Bars whose name starts with `ours` are blue, the others grey.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    rows = -(-len(panels) // columns)
    max_bars = max(map(len, panels.values()))
    figure, axes = pyplot.subplots(rows, columns, figsize=(5.2 * columns, (0.9 + 0.32 * max_bars) * rows))
    flat_axes = list(axes.flat) if hasattr(axes, "flat") else [axes]
    for axis, (scenario, values) in zip(flat_axes, panels.items(), strict=False):
        names = list(values)[::-1]
        lengths = [values[name] for name in names]
        colours = ["#1f6fb4" if name.startswith(ours) else "#b8bec6" for name in names]
        bars = axis.barh(names, lengths, color=colours)
        axis.bar_label(bars, [_format_value(value) for value in lengths], padding=3, fontsize=8)
        axis.set_title(scenario, fontsize=10, loc="left")
        axis.set_xlabel(unit, fontsize=8)
        axis.tick_params(labelsize=8)
        axis.set_xlim(0, max(lengths) * 1.18 or 1)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in flat_axes[len(panels) :]:
        axis.set_visible(False)
    figure.suptitle(title, fontsize=12, x=0.01, ha="left")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _format_value(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _round_to_4_digits(value: float | None) -> float:
    return float(f"{value or 0.0:.4g}")
