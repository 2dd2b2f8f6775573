"""Write the recorded runs of `make chaos` into the tables of docs/reliability.md.

The tables stand between comments, `<!-- NAME -->` and `<!-- end of NAME -->`. All else is written by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reliability.md"
RESULTS = ROOT / "bench" / "results" / "chaos.json"


def reliability_page() -> str:
    """Return the page with the tables of the recorded runs."""
    results = json.loads(RESULTS.read_text())
    page = PAGE.read_text()
    for name, lines in TABLES.items():
        section = f"<!-- {name} -->\n\n" + "".join(f"{line}\n" for line in lines(results)) + "\n"
        pattern = rf"<!-- {name} -->.*?(?=<!-- end of {name} -->)"
        page, found = re.subn(pattern, section.replace("\\", r"\\"), page, flags=re.DOTALL)
        assert found == 1, f"{PAGE.name} has no section {name!r}"
    return page


def fault_lines(results: dict[str, Any]) -> list[str]:
    faults: dict[str, int] = results["totals"]["faults"]
    return [
        *table_head("Fault", "Times"),
        *(f"| {kind} | {count} |" for kind, count in faults.items()),
        f"| **all {len(faults)} kinds** | **{sum(faults.values())}** |",
    ]


def check_lines(results: dict[str, Any]) -> list[str]:
    checked, violations = results["totals"]["checked"], results["totals"]["violations"]
    return [
        *table_head("Guarantee", "Checked", "Violations"),
        *(f"| {name} | {count:,} | {violations.get(name, 0)} |" for name, count in checked.items()),
    ]


def run_lines(results: dict[str, Any]) -> list[str]:
    names = (
        "Seed",
        "Options",
        "Load",
        "Faults",
        "Calls: answered, refused, unknown",
        "Violations",
        "Machine's load",
    )
    return [*table_head(*names), *map(run_row, results["runs"]), total_row(results["runs"])]


def run_row(run: dict[str, Any]) -> str:
    options = [f"{run['minutes']:g} min"]
    if not run["pipeline"]:
        options.append("no pipeline")
    if run["kinds"]:
        options.append(f"{len(run['kinds'])} kinds")
    load = run["environment"]["load_at_start"][0]
    return f"| {run['seed']} | {', '.join(options)} | {figures([run])} | {load:.1f} |"


def total_row(runs: list[dict[str, Any]]) -> str:
    return f"| **all** | {len(runs)} runs | {figures(runs)} | |"


def figures(runs: list[dict[str, Any]]) -> str:
    """Return the cells that sum up some runs: load, faults, calls and violations."""
    calls = (sum(run["calls"][outcome] for run in runs) for outcome in ("ok", "fail", "unknown"))
    cells = [
        f"{sum(run['load_s'] for run in runs) / 60:.0f} min",
        str(sum(sum(run["faults"].values()) for run in runs)),
        ", ".join(f"{count:,}" for count in calls),
        str(sum(sum(run["violations"].values()) for run in runs)),
    ]
    return " | ".join(cells)


def table_head(*names: str) -> list[str]:
    return [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]


TABLES: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "recorded faults": fault_lines,
    "recorded checks": check_lines,
    "recorded runs": run_lines,
}
