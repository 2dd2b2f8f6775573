"""The cause of an incident: the order of the checks, their figures, and what they exclude."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.alerts.incidents.cause import (
    BlockedPartition,
    CauseKind,
    PlatformEvidence,
    QueueEvidence,
    find_cause,
)

QUEUE = QueueEvidence("orders", False, depth=100, running=2, limit=10, dequeued=50, enqueued_hour=60)
PLATFORM = PlatformEvidence(pipeline_lag_s=5.0)
BLOCKED = BlockedPartition("eu", "billing", offset=7, attempts=4, message_id="m-1")

CASES = [
    (CauseKind.PAUSED, {"paused": True}, {}, "orders is paused."),
    (CauseKind.LIMIT_REACHED, {"running": 10}, {}, "orders runs at its concurrency limit: 10 of 10."),
    (
        CauseKind.LIMIT_REACHED,
        {"limit": None},
        {"environment_running": 30, "environment_limit": 30.0},
        "The run queues of the environment run at their limit together: 30 of 30.",
    ),
    (
        CauseKind.NO_CONSUMERS,
        {"running": 0, "dequeued": 0},
        {},
        "No consumer took work from orders in the last 10 min, and 100 wait.",
    ),
    (
        CauseKind.NO_CONSUMERS,
        {"running": 0, "dequeued": 0, "groups": 0},
        {},
        "No consumer has ever read from orders.",
    ),
    (
        CauseKind.BLOCKED_PARTITION,
        {"blocked": BLOCKED},
        {},
        "Partition eu of orders is blocked by message m-1, which failed 4 times in group billing.",
    ),
    (
        CauseKind.ERROR_GROUP,
        {"errors": [("timeout of <n> s", 8), ("other", 2)]},
        {},
        "8 of 10 dead letters of orders in the last two hours have the error: timeout of <n> s",
    ),
    (
        CauseKind.ENQUEUE_SPIKE,
        {"enqueued_hour": 60, "enqueued_hour_last_week": 15},
        {},
        "orders got 60 in the last hour, ×4.0 of the same hour last week.",
    ),
    (
        CauseKind.DATABASE_OVERLOADED,
        {},
        {"pending_operations": 12, "oldest_operation_s": 30.0},
        "PostgreSQL is overloaded or was away: 12 deferred operations wait, the oldest for 30 s.",
    ),
    (
        CauseKind.VACUUM_HORIZON,
        {},
        {"horizon_holder": "transaction 42 of psql", "horizon_held_s": 1_200.0},
        "The vacuum horizon is held for 20 min by transaction 42 of psql.",
    ),
    (CauseKind.PIPELINE_STALE, {}, {"pipeline_lag_s": 90.0}, "The metrics are 90 s behind."),
    (CauseKind.UNKNOWN, {}, {}, "No known cause applies."),
]


@pytest.mark.parametrize(("kind", "queue", "platform", "summary"), CASES)
def test_each_check_names_its_cause_and_the_others_are_excluded(
    kind: CauseKind, queue: dict[str, object], platform: dict[str, object], summary: str
) -> None:
    cause = find_cause([replace(QUEUE, **queue)], replace(PLATFORM, **platform))  # type: ignore[arg-type]
    assert (cause["kind"], cause["summary"]) == (kind.value, summary)
    others = [known.value for known in CauseKind if known not in (kind, CauseKind.UNKNOWN)]
    assert [check["kind"] for check in cause["excluded"]] == others
    assert all(check["reason"] for check in cause["excluded"])
    assert bool(cause["figures"]) is (kind is not CauseKind.UNKNOWN)


def test_the_first_of_several_causes_is_named() -> None:
    queue = replace(QUEUE, paused=True, running=10, blocked=BLOCKED, errors=[("broken", 9)])
    assert find_cause([queue], replace(PLATFORM, pipeline_lag_s=90.0))["kind"] == CauseKind.PAUSED
    queue = replace(queue, paused=False, running=1)
    assert find_cause([queue], PLATFORM)["kind"] == CauseKind.BLOCKED_PARTITION


def test_any_queue_of_the_incident_can_name_the_cause() -> None:
    cause = find_cause([QUEUE, replace(QUEUE, queue="mails", paused=True)], PLATFORM)
    assert cause["figures"]["queue"] == "mails"


@pytest.mark.parametrize(
    "queue",
    [
        {"blocked": replace(BLOCKED, attempts=1)},
        {"errors": [("broken", 2)]},
        {"errors": [("a", 4), ("b", 3), ("c", 3)]},
        {"enqueued_hour": 60, "enqueued_hour_last_week": 30},
        {"enqueued_hour": 6, "enqueued_hour_last_week": 1},
        {"enqueued_hour": 600, "enqueued_hour_last_week": 0},
        {"depth": 0, "running": 0, "dequeued": 0},
    ],
)
def test_weak_evidence_names_no_cause(queue: dict[str, object]) -> None:
    assert find_cause([replace(QUEUE, **queue)], PLATFORM)["kind"] == CauseKind.UNKNOWN  # type: ignore[arg-type]
