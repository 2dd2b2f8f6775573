"""A schedule follows from its seed, and a history survives its file."""

from __future__ import annotations

import math
from pathlib import Path

from chaos.history import FaultSpan, HistoryWriter, read_history
from chaos.schedule import POSTGRES_CRASHES, build_schedule, known_kinds

KINDS = known_kinds(disk=True, clocks=True, pipeline=True)


def test_the_same_seed_gives_the_same_schedule() -> None:
    assert build_schedule(7, 50, KINDS) == build_schedule(7, 50, KINDS)
    assert build_schedule(7, 50, KINDS) != build_schedule(8, 50, KINDS)


def test_a_shorter_run_has_the_first_faults_of_a_longer_one() -> None:
    assert build_schedule(7, 50, KINDS)[:20] == build_schedule(7, 20, KINDS)


def test_every_kind_comes_before_one_comes_twice() -> None:
    injected = [kind for fault in build_schedule(7, 50, KINDS) for kind in fault.kinds]
    assert set(injected[: len(KINDS)]) == set(KINDS)


def test_clocks_are_stepped_in_both_directions_by_up_to_two_minutes() -> None:
    steps = [fault.step_s for fault in build_schedule(7, 200, KINDS)]
    assert min(steps) < -60
    assert max(steps) > 60
    assert all(1 <= abs(step) <= 120 for step in steps)


def test_what_happens_during_a_migration_is_a_fault_of_its_own_too() -> None:
    during = [kind.partition(" during ") for kind in KINDS if " during " in kind]
    assert {activity for _, _, activity in during} == {"migration", "rolling upgrade"}
    assert {kind for kind, _, _ in during} <= set(KINDS)


def test_every_crash_of_postgres_is_a_known_kind() -> None:
    assert set(POSTGRES_CRASHES) <= set(KINDS)


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path / "history.jsonl")
    stored = writer.invoke("producer", "push", {"items": []})
    writer.begin_fault("valkey killed", 1)
    lost = writer.invoke("producer", "push", {"items": [1]})
    writer.complete(stored, "ok", {"statuses": []})
    writer.complete(lost, "unknown", {"error": "cut"})
    writer.end_fault(1)
    writer.begin_fault("postgres killed", 2)
    writer.invoke("consumer", "pop", {})
    writer.close()

    history = read_history(tmp_path / "history.jsonl")

    assert [(call.op, call.outcome) for call in history.calls] == [
        ("push", "ok"),
        ("push", "unknown"),
        ("pop", "unknown"),
    ]
    assert history.calls[0].invoked_at <= history.calls[0].completed_at < math.inf
    assert {call.completed_at for call in history.calls[1:]} == {math.inf}
    healed, unhealed = history.faults
    assert (healed.kind, healed.ended_at < math.inf) == ("valkey killed", True)
    assert unhealed == FaultSpan("postgres killed", unhealed.began_at, math.inf)
