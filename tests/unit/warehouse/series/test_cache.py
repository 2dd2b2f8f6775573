"""The cache of a series reader: how long it keeps keys, and how it tells subjects apart."""

from __future__ import annotations

from penstock.definitions import QUEUE, WORKER
from penstock.warehouse.series.cache import ExpiringSet, subject_key
from penstock.warehouse.series.readings import Selection


def test_a_key_expires_after_its_time_to_live() -> None:
    now_s = 100.0
    keys = ExpiringSet(60, clock=lambda: now_s)
    keys.add("a")
    assert "a" in keys
    assert "b" not in keys
    now_s = 159.9
    assert "a" in keys
    now_s = 160.0
    assert "a" not in keys


def test_a_full_set_is_emptied() -> None:
    keys = ExpiringSet(60, max_keys=3)
    for key in range(4):
        keys.add(key)
    assert [key in keys for key in range(4)] == [False, False, False, True]


def test_subjects_differ_by_metric_rollup_and_tenant() -> None:
    ours, theirs = (Selection("", {"organization": name, "queue": "q"}) for name in ("ours", "theirs"))
    environment = Selection("", ours.parameters, rollup="environment")
    keys = {
        subject_key(definition, selection)
        for definition in (QUEUE, WORKER)
        for selection in (ours, theirs, environment)
    }
    assert len(keys) == 6
    assert subject_key(QUEUE, ours) == subject_key(QUEUE, Selection("", dict(ours.parameters)))
