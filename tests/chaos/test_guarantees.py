"""A short run of `make chaos`: faults of each main kind, and no violated guarantee."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from chaos.checker import Guarantee, check_history
from chaos.history import read_history
from chaos.run import RunOptions, run_chaos

from tests.directories import temporary_directory

SEED = 119
FAULTS = 5
KINDS = (
    "broker worker killed",
    "postgres backend killed",
    "valkey killed",
    "clients link cut",
    "postgres link dropped",
    "supervisor killed",
)


@pytest.mark.timeout(240)
def test_guarantees_hold_while_processes_die_and_connections_break() -> None:
    """Series and alerts are checked by long runs alone, because Spark takes half a minute to start."""
    options = RunOptions(SEED, minutes=2.0, pipeline=False, kinds=KINDS, faults=FAULTS)
    with temporary_directory() as folder:
        home = folder / "home"
        home.mkdir(mode=0o755)
        result = asyncio.run(run_chaos(options, folder, home, None, lambda share, title, history: None))
        findings = check_history(read_history(Path(folder) / "history.jsonl"))
    assert result.problems == []
    assert findings.violations == []
    assert result.missed.total() == 0
    assert set(result.injected) == set(KINDS)
    with_pipeline = {guarantee for guarantee in Guarantee if guarantee.name.startswith(("SERIES", "ALERT"))}
    assert all(findings.checked[guarantee] for guarantee in set(Guarantee) - with_pipeline)
