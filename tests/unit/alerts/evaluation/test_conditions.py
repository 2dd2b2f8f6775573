"""Every type of rule over compact timelines: a queue's minutes, and the state after each."""

from __future__ import annotations

import pytest

from tests.unit.alerts.timelines import Timeline, run_timeline

EMPTY = {"depth": 0, "running": 0, "oldest_age_ms": 0}


def backlog(**fields: object) -> dict[str, object]:
    return {"type": "BACKLOG", "threshold": 10, "windowMinutes": 3, **fields}


TIMELINES = [
    Timeline(
        "BACKLOG must last for the window",
        backlog(),
        {"depth": "0 50 50 50 50 50 0 0"},
        "ooooFFoo",
        EMPTY,
    ),
    Timeline("BACKLOG: one spike does not fire", backlog(), {"depth": "0 90 0 90 0 90 0"}, "ooooooo", EMPTY),
    Timeline(
        "BACKLOG of an idle stuck queue is carried forward",
        backlog(),
        {"depth": "50 _ _ _ _ _"},
        "oooFFF",
        EMPTY,
    ),
    Timeline(
        "BACKLOG of a new queue is unknown until the window is covered",
        backlog(),
        {"depth": "50 50 50 50"},
        "??FF",
    ),
    Timeline(
        "BACKLOG with the maximum fires at once",
        backlog(statistic="max"),
        {"depth": "0 50 0 0 0 0"},
        "oFFFFo",
        EMPTY,
    ),
    Timeline(
        "BACKLOG with a clear threshold",
        backlog(windowMinutes=1, clearThreshold=3, statistic="last"),
        {"depth": "20 12 8 4 3 2 20"},
        "FFFFooF",
        EMPTY,
    ),
    Timeline(
        "BACKLOG below a threshold",
        backlog(operator="LESS_THAN", threshold=5, windowMinutes=2),
        {"depth": "9 9 2 2 2 9"},
        "ooooFo",
        {"depth": 9},
    ),
    Timeline(
        "BACKLOG with too few observed points is unknown",
        backlog(minObservedPoints=12, windowMinutes=2),
        {"depth": "50 50 50 _ _ 50 50"},
        "ooFF?FF",
        EMPTY,
    ),
    Timeline(
        "LATENCY is the mean wait of the window",
        {"type": "LATENCY", "threshold": 1_000, "windowMinutes": 2},
        {
            "wait_ms_count": "10 10 10 10 10",
            "wait_ms_sum": "1000 30000 30000 1000 1000",
            "depth": "1 1 1 1 1",
        },
        "oFFFo",
        EMPTY,
    ),
    Timeline(
        "LATENCY of a stalled queue is its oldest age",
        {"type": "LATENCY", "threshold": 150_000, "windowMinutes": 2},
        {
            "depth": "5 _ _ _ _",
            "oldest_age_ms": "30000 _ _ _ _",
            "wait_ms_count": "9 0 0 0 0",
            "wait_ms_sum": "900 0 0 0 0",
        },
        "oooFF",
        EMPTY,
    ),
    Timeline(
        "ERROR_RATE is failed by finished attempts",
        {"type": "ERROR_RATE", "threshold": 0.5, "windowMinutes": 1},
        {"acked": "20 4 4 20", "nacked": "0 16 0 0", "dead": "0 0 16 0"},
        "oFFo",
    ),
    Timeline(
        "ERROR_RATE: one failure of one attempt does not fire, and an idle queue resolves",
        {"type": "ERROR_RATE", "threshold": 0.5, "windowMinutes": 1},
        {"acked": "0 0 1 0", "nacked": "1 20 1 0"},
        "oFFo",
    ),
    Timeline(
        "OLDEST_AGE grows while the queue is idle",
        {"type": "OLDEST_AGE", "threshold": 200_000},
        {"depth": "5 _ _ _ _ 0", "oldest_age_ms": "60000 _ _ _ _ 0"},
        "oooFFo",
        EMPTY,
    ),
    Timeline(
        "DEAD_LETTERS counts those of the window",
        {"type": "DEAD_LETTERS", "threshold": 2, "windowMinutes": 2},
        {"dead": "1 1 2 0 0"},
        "ooFoo",
    ),
    Timeline(
        "SATURATION for the whole window",
        {"type": "SATURATION", "windowMinutes": 2},
        {"running": "4 4 4 2 4", "limit": "4 4 4 4 4"},
        "oFFFF",
        {"running": 0, "limit": 4},
    ),
    Timeline(
        "SATURATION of a queue without a limit never fires",
        {"type": "SATURATION", "windowMinutes": 2},
        {"running": "4 4 4"},
        "ooo",
    ),
    Timeline(
        "TIME_TO_DRAIN of a growing and of a shrinking backlog",
        {"type": "TIME_TO_DRAIN", "threshold": 600_000, "windowMinutes": 2},
        {"depth": "10 20 30 20 10 0"},
        "FFFooo",
        EMPTY,
    ),
    Timeline(
        "STALLED: work waits and nothing starts",
        {"type": "STALLED", "windowMinutes": 3, "form": "waiting"},
        {"depth": "5 5 5 5 5", "oldest_age_ms": "9 9 9 9 9", "dequeued": "1 0 0 0 1", "running": "0 0 0 0 0"},
        "oooFo",
        {"depth": 5, "oldest_age_ms": 9},
    ),
    Timeline(
        "STALLED: work is running and nothing completes",
        {"type": "STALLED", "windowMinutes": 3, "form": "running"},
        {"running": "2 _ _ _ 2", "acked": "1 0 0 0 1", "depth": "0 0 0 0 0"},
        "oooFo",
        {"running": 2, "depth": 0},
    ),
    Timeline(
        "STALLED does not fire for an empty queue",
        {"type": "STALLED", "windowMinutes": 2},
        {"depth": "0 _ _", "running": "0 _ _"},
        "ooo",
        EMPTY,
    ),
    Timeline(
        "CAPACITY_LOSS: little runs while work waits",
        {"type": "CAPACITY_LOSS", "windowMinutes": 2},
        {"running": "8 1 1 1 8", "limit": "10 10 10 10 10", "depth": "5 5 5 5 5"},
        "oooFo",
        {"running": 8, "limit": 10, "depth": 5},
    ),
    Timeline(
        "CAPACITY_LOSS needs waiting work",
        {"type": "CAPACITY_LOSS", "windowMinutes": 2},
        {"running": "1 1 1", "limit": "10 10 10", "depth": "0 0 0"},
        "ooo",
        {"running": 1, "limit": 10, "depth": 0},
    ),
]


@pytest.mark.parametrize("timeline", TIMELINES, ids=lambda timeline: timeline.name)
def test_a_rule_has_the_expected_states(timeline: Timeline) -> None:
    states, _ = run_timeline(timeline)

    assert states == timeline.states
