"""Tests of the labels and sentences of the report."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from penstock.pipeline.capacity import sentences
from penstock.pipeline.capacity.verdict import REPORT_COLUMNS, VERDICTS


def row(**values: Any) -> dict[str, Any]:
    return dict.fromkeys(REPORT_COLUMNS) | {"kind": "queue", "verdict": "fine", "hours_at_limit": 0} | values


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (0, "0"), (0.0312, "0.0312"), (4.567, "4.57"), (99.96, "100"), (1234.5, "1,234"), (7, "7")],
)
def test_numbers_have_three_significant_figures(value: float | None, shown: str) -> None:
    assert sentences.number(value) == shown


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [(None, "–"), (0.4, "0 ms"), (85, "85 ms"), (2_400, "2.4 s"), (720_000, "12 min"), (11_160_000, "3.1 h")],
)
def test_waits_have_a_suitable_unit(milliseconds: float | None, shown: str) -> None:
    assert sentences.wait(milliseconds) == shown


def test_every_verdict_and_saturation_has_a_distinct_label() -> None:
    labels = {sentences.label(row(verdict=verdict)) for verdict in VERDICTS}
    assert len(labels) == len(VERDICTS)
    kinds = ("reached", "date", "far", "never", "no_limit", "not_enough_data")
    assert len({sentences.saturation(row(saturation=kind)) for kind in kinds}) == len(kinds)


def test_a_date_is_shown_with_its_range() -> None:
    dated = row(verdict="soon", slope=1.25, limit=50, saturates_on=date(2026, 12, 1))
    ranged = dated | {"earliest": date(2026, 11, 28), "latest": date(2026, 12, 9)}
    assert sentences.sentence(ranged) == (
        "Its daily peaks grow by 1.25 a day and will reach the limit of 50 on 2026-12-01 "
        "(between 2026-11-28 and 2026-12-09)."
    )


def test_without_a_limit_the_sentence_does_not_mention_free_capacity() -> None:
    sentence = sentences.sentence(row(busy_ratio=0.99, busy_enqueued_per_s=12.0))
    assert sentence.startswith("It has no limit. In its busiest hours it finished 99% of the arrivals")
    assert sentences.sentence(row(overall_ratio=0.97)) == "It has no limit. It finished 97% of its arrivals."


def test_without_evidence_no_sentence_says_that_it_keeps_up() -> None:
    unknown = row(verdict="unknown")
    assert sentences.label(unknown) == "not enough data"
    assert sentences.sentence(unknown) == "It has no limit, and too few arrivals to tell whether it keeps up."
    assert sentences.sentence(unknown | {"kind": "environment"}) == (
        "The environment has no limit. Whether its consumers keep up is only known per queue."
    )


def test_a_queue_without_busy_hours_falls_behind_by_its_whole_period() -> None:
    behind = row(verdict="behind", overall_ratio=0.17)
    assert sentences.sentence(behind) == "It finished 17% of its arrivals: its backlog grows."


def test_growth_is_relative_to_the_level() -> None:
    assert sentences.growth(row()) == ""
    assert sentences.growth(row(direction="flat", slope=0.1, level=5.0)) == "flat"
    assert sentences.growth(row(direction="rising", slope=1.0, level=70.0)) == "+10%/week"
    assert sentences.growth(row(direction="falling", slope=-1.0, level=0.0)) == "-7/week"
