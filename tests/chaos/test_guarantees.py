"""A short run of `make chaos`: faults of each main kind, and no violated guarantee."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from chaos.checker import NEED_PIPELINE, Guarantee, check_history
from chaos.history import read_history
from chaos.run import RunOptions, run_chaos
from chaos.stepped_clock import find_compiler

from tests.directories import temporary_directory

SEED = 1010
FAULTS = 5
KINDS = (
    "broker worker killed",
    "postgres backend killed",
    "valkey killed",
    "clients link cut",
    "postgres link dropped",
    "supervisor killed",
    "migration killed",
    "postgres clock stepped",
)


@pytest.mark.timeout(240)
def test_guarantees_hold_while_processes_die_and_connections_break() -> None:
    """Series and alerts are checked by long runs alone, because Spark takes half a minute to start."""
    kinds: tuple[str, ...] = KINDS
    faults = FAULTS
    if find_compiler() is None:
        kinds = KINDS[:-1]
        faults = len(kinds)
    options = RunOptions(SEED, minutes=2.0, pipeline=False, kinds=kinds, faults=faults)
    with temporary_directory() as folder:
        home = folder / "home"
        home.mkdir(mode=0o755)
        result = asyncio.run(run_chaos(options, folder, home, None, lambda share, title, history: None))
        findings = check_history(read_history(Path(folder) / "history.jsonl"))
    assert result.problems == []
    assert findings.violations == []
    assert result.missed.total() == 0
    assert set(result.injected) == set(kinds)
    assert all(findings.checked[guarantee] for guarantee in set(Guarantee) - NEED_PIPELINE)
