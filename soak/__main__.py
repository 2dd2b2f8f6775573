"""Run a platform at half of its capacity and check that nothing grows.

Exit code 1 means that a series grew after the warm-up, or that the load met an error.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness import add_results_option, open_console
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from soak.report import build_report, has_failed, print_report, write_results
from soak.run import OnProgress, SoakOptions, run_soak

WARMUP_SHARE = 1 / 3
MIN_JUDGED_S = 240.0
"""Caches, pools and PostgreSQL's vacuum need minutes; a shorter time shows the end of the warm-up."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="how long the load runs")
    parser.add_argument("--share", type=float, default=0.5, help="the load as a share of the capacity")
    parser.add_argument("--seed", type=int, default=1, help="payloads and failures follow from it")
    parser.add_argument("--quick", action="store_true", help="a smoke run of seconds, which is not judged")
    parser.add_argument("--keep", action="store_true", help="keep the home of a run in which nothing grew")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    add_results_option(parser)
    return parser.parse_args()


def build_options(arguments: argparse.Namespace) -> SoakOptions:
    load_s = 6.0 if arguments.quick else arguments.minutes * 60
    return SoakOptions(
        seed=arguments.seed,
        share=arguments.share,
        load_s=load_s,
        warmup_s=load_s * WARMUP_SHARE,
        capacity_s=2.0 if arguments.quick else 30.0,
        sample_s=1.0 if arguments.quick else 5.0,
        min_judged_s=MIN_JUDGED_S,
    )


def main() -> int:
    if sys.platform != "linux":
        sys.exit("A soak reads /proc: run it on Linux.")
    arguments = parse_arguments()
    options = build_options(arguments)
    home = Path(tempfile.mkdtemp(prefix="penstock-soak-"))
    home.chmod(0o755)  # as root, PostgreSQL runs as another user and must pass through it
    failed = True
    try:
        with progress_display(Console(stderr=True)) as on_progress:
            result = run_soak(options, home, on_progress)
        report = build_report(options, result)
        path = write_results(report, result, arguments.results)
        failed = has_failed(report)
        if arguments.json:
            print(json.dumps(report))
        else:
            print_report(open_console(), report)
            open_console().print(f"{path.name} and its plot are in {arguments.results}")
    finally:
        if failed or arguments.keep:
            Console(stderr=True).print(f"Home with the logs: {home}", soft_wrap=True)
        else:
            shutil.rmtree(home)
    return int(failed)


@contextmanager
def progress_display(console: Console) -> Iterator[OnProgress]:
    """Show a bar with the share of the load that is over, and what happens now."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:.0f} %"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=1.0)

        def on_progress(share: float, description: str) -> None:
            progress.update(task, completed=min(share, 1.0), description=description)

        yield on_progress


if __name__ == "__main__":
    raise SystemExit(main())
