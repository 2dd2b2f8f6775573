"""Inject faults into a whole platform under load and check its guarantees.

A run whose checks fail keeps its folder and ends with exit code 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness import RESULTS_DIRECTORY, add_results_option, open_console
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from chaos.checker import check_history
from chaos.disk import small_disk
from chaos.history import HistoryWriter, read_history
from chaos.report import build_report, has_failed, print_replay, print_report, record_results
from chaos.run import OnProgress, RunOptions, RunResult, run_chaos


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the schedule of faults follows from it")
    parser.add_argument("--minutes", type=float, default=5, help="how long faults are injected")
    parser.add_argument("--no-pipeline", action="store_true", help="run without Spark and ClickHouse")
    parser.add_argument("--kinds", default="", help="comma-separated kinds of faults; default: all")
    parser.add_argument("--keep", action="store_true", help="keep the folder of a run without violations")
    parser.add_argument("--record", action="store_true", help="add the run to the recorded results")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--check", type=Path, metavar="FOLDER", help="only check the history of an earlier run"
    )
    add_results_option(parser)
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    console = open_console()
    if arguments.check:
        return check_again(arguments.check, console)
    kinds = tuple(kind.strip() for kind in arguments.kinds.split(",") if kind.strip())
    options = RunOptions(arguments.seed, arguments.minutes, not arguments.no_pipeline, kinds)
    folder = make_run_folder()
    with progress_display(Console(stderr=True)) as on_progress:
        result = run_in_folder(options, folder, on_progress)
    findings = check_history(read_history(folder / "history.jsonl"))
    report = build_report(options, result, findings)
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    if arguments.json:
        print(json.dumps(report))
    else:
        print_report(console, report, findings)
    if arguments.record:
        record_results(report, arguments.results or RESULTS_DIRECTORY)
    failed = has_failed(report)
    if failed or arguments.keep:
        print_replay(Console(stderr=True), options, folder)
    else:
        shutil.rmtree(folder)
    return int(failed)


def make_run_folder() -> Path:
    """Create the folder of a run. As root, PostgreSQL runs as another user and must pass through it."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
    folder.chmod(0o755)
    return folder


def run_in_folder(options: RunOptions, folder: Path, on_progress: OnProgress) -> RunResult:
    """Run with the data on a small disk if possible; afterwards the folder holds the logs, not the data."""
    with small_disk(folder) as disk:
        home = (disk.path if disk else folder) / "home"
        home.mkdir()
        home.chmod(0o755)
        try:
            return asyncio.run(run_chaos(options, folder, home, disk, on_progress))
        finally:
            if (home / "logs").exists():
                shutil.copytree(home / "logs", folder / "logs", dirs_exist_ok=True)
            shutil.rmtree(folder / "versions", ignore_errors=True)
            if disk is None:
                shutil.rmtree(home)


def check_again(folder: Path, console: Console) -> int:
    findings = check_history(read_history(folder / "history.jsonl"))
    report = json.loads((folder / "report.json").read_text()) if (folder / "report.json").exists() else {}
    options = RunOptions(report.get("seed", 0), report.get("minutes", 0), report.get("pipeline", False))
    outcomes = report.get("calls", {"ok": 0, "fail": 0, "unknown": 0})
    checked = build_report(
        options, RunResult(outcomes=outcomes, problems=report.get("problems", [])), findings
    )
    print_report(console, checked | {"faults": report.get("faults", {})}, findings)
    return int(has_failed(checked))


@contextmanager
def progress_display(console: Console) -> Iterator[OnProgress]:
    """Show a bar with the share of the run, the fault of the moment and the calls so far."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[calls]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting the platform", total=1.0, calls="")

        def on_progress(share: float, description: str, history: HistoryWriter) -> None:
            calls = f"{sum(history.outcomes.values()):,} calls"
            progress.update(task, completed=min(share, 1.0), description=description, calls=calls)

        yield on_progress


if __name__ == "__main__":
    raise SystemExit(main())
