"""The report of a run: tables for people, JSON for programs, and the recorded results."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from bench.harness import RESULTS_DIRECTORY, build_table, describe_environment
from rich.console import Console

from chaos.checker import Findings, Guarantee
from chaos.run import RunOptions, RunResult

MAX_PRINTED_VIOLATIONS = 20
RESULTS_FILE = "chaos.json"


def build_report(options: RunOptions, result: RunResult, findings: Findings) -> dict[str, Any]:
    violations = Counter(str(violation.guarantee) for violation in findings.violations)
    return {
        "seed": options.seed,
        "minutes": options.minutes,
        "pipeline": options.pipeline,
        "kinds": list(options.kinds),
        "load_s": round(result.load_s, 1),
        "faults": dict(sorted(result.injected.items())),
        "missed_faults": dict(sorted(result.missed.items())),
        "calls": result.outcomes,
        "checked": {str(name): findings.checked[name] for name in Guarantee if findings.checked[name]},
        "violations": dict(violations),
        "problems": result.problems,
    }


def has_failed(report: dict[str, Any]) -> bool:
    return bool(report["violations"] or report["problems"])


def print_report(console: Console, report: dict[str, Any], findings: Findings) -> None:
    faults = [[kind, str(count)] for kind, count in report["faults"].items()]
    faults.append(["all", str(sum(report["faults"].values()))])
    console.print(build_table("Faults injected", ["kind", "times"], faults))
    rows = [
        [name, f"{count:,}", str(report["violations"].get(name, 0))]
        for name, count in report["checked"].items()
    ]
    console.print(build_table("Guarantees", ["guarantee", "checked", "violations"], rows))
    calls = report["calls"]
    console.print(
        f"{sum(calls.values()):,} calls: {calls['ok']:,} answered, {calls['fail']:,} refused, "
        f"{calls['unknown']:,} with an unknown outcome"
    )
    for violation in findings.violations[:MAX_PRINTED_VIOLATIONS]:
        console.print(
            f"[red]{violation.guarantee}[/]: {violation.text} (calls {violation.calls})", soft_wrap=True
        )
    for problem in report["problems"]:
        console.print(f"[red]{problem}[/]", soft_wrap=True)


def print_replay(console: Console, options: RunOptions, folder: Path) -> None:
    arguments = f"--seed {options.seed} --minutes {options.minutes:g}"
    if not options.pipeline:
        arguments += " --no-pipeline"
    if options.kinds:
        arguments += f" --kinds '{','.join(options.kinds)}'"
    console.print(f"History, schedule and logs: {folder}", soft_wrap=True)
    console.print(f'Run it again:   make chaos ARGS="{arguments}"', soft_wrap=True)
    console.print(f'Check it again: make chaos ARGS="--check {folder}"', soft_wrap=True)


def record_results(report: dict[str, Any], directory: Path = RESULTS_DIRECTORY) -> Path:
    """Add a run to the recorded results; a run with the same seed and length replaces the earlier one."""
    path = directory / RESULTS_FILE
    runs: list[dict[str, Any]] = json.loads(path.read_text())["runs"] if path.exists() else []
    key = ("seed", "minutes", "pipeline", "kinds")
    runs = [run for run in runs if any(run[name] != report[name] for name in key)]
    runs.append(report | {"environment": describe_environment()})
    runs.sort(key=lambda run: [run[name] for name in key])
    totals = {
        "runs": len(runs),
        "faults": dict(sorted(sum((Counter(run["faults"]) for run in runs), Counter()).items())),
        "calls": dict(sum((Counter(run["calls"]) for run in runs), Counter())),
        "checked": dict(sum((Counter(run["checked"]) for run in runs), Counter())),
        "violations": dict(sum((Counter(run["violations"]) for run in runs), Counter())),
    }
    directory.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"totals": totals, "runs": runs}, indent=1) + "\n")
    return path
