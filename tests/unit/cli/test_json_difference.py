"""Differences of JSON values are shown field by field."""

from __future__ import annotations

import pytest

from penstock.cli.json_difference import describe_difference


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, ["~ b: 2 → 3"]),
        (None, {"a": {"b": "x"}, "c": []}, ['+ a.b: "x"', "+ c: []"]),
        ({"a": {"b": None}}, None, ["- a.b: null"]),
        ([{"q": "x", "n": 1}], [{"q": "x", "n": 2}, {"q": "y"}], ["~ [0].n: 1 → 2", '+ [1].q: "y"']),
        ({"names": ["a", "b"]}, {"names": ["a"]}, ['~ names: ["a", "b"] → ["a"]']),
        ({"a": 1}, {"a": 1}, ["The object is the same as before."]),
        (None, None, ["Nothing changed, or the call does not say what."]),
    ],
)
def test_differences(before: object, after: object, lines: list[str]) -> None:
    assert [line.plain for line in describe_difference(before, after)] == lines
