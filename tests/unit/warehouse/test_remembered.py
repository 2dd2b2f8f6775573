"""What is remembered, and for how long."""

from __future__ import annotations

import pytest

from penstock.definitions import QUEUE, WORKER
from penstock.warehouse.clickhouse_client import connect
from penstock.warehouse.series import cache
from penstock.warehouse.series.cache import Remembered, thing
from penstock.warehouse.series.readings import Selection


def test_a_key_is_remembered_for_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(cache.time, "monotonic", lambda: now)
    things = Remembered(60)
    things.add("a")
    assert "a" in things
    assert "b" not in things
    now = 159.9
    assert "a" in things
    now = 160.0
    assert "a" not in things


def test_it_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MOST", 3)
    things = Remembered(60)
    for key in range(4):
        things.add(key)
    assert [key in things for key in range(4)] == [False, False, False, True]


def test_things_are_told_apart_by_database_metric_rollup_and_tenant() -> None:
    one, other = connect("http://one:8123/a"), connect("http://one:8123/b")
    ours, theirs = (Selection("", {"organization": name, "queue": "q"}) for name in ("ours", "theirs"))
    whole = Selection("", ours.parameters, rollup="environment")
    found = {
        thing(warehouse, definition, selection)
        for warehouse in (one, other)
        for definition in (QUEUE, WORKER)
        for selection in (ours, theirs, whole)
    }
    assert len(found) == 12
    assert thing(one, QUEUE, ours) == thing(connect(one.url), QUEUE, ours)
