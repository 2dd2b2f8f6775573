"""Percentiles of folded, stored and merged digests are close to the exact ones."""

from __future__ import annotations

import numpy
import pytest

from penstock.broker.self_metrics.lag import (
    MAX_CENTROIDS,
    QUANTILES,
    LagPercentiles,
    LagSummary,
    merge_digests,
)

VALUES = 60_000
_random = numpy.random.default_rng(8)

DISTRIBUTIONS = {
    "even": _random.uniform(100, 10_000, VALUES),
    "skewed": _random.lognormal(6, 1.2, VALUES),
    "heavy tail": (_random.pareto(1.5, VALUES) + 1) * 500,
    "bimodal": numpy.where(
        _random.random(VALUES) < 0.9, _random.normal(400, 40, VALUES), _random.normal(50_000, 4_000, VALUES)
    ),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_percentiles_are_within_one_percent(name: str) -> None:
    """As in production: three workers, ten minutes each, values in small lists."""
    values = numpy.round(DISTRIBUTIONS[name]).astype(int)
    percentiles = LagPercentiles()
    for minute_values in numpy.array_split(values, 30):
        lag = LagSummary()
        for popped in numpy.array_split(minute_values, 50):
            lag.add(popped.tolist())
        assert (lag.count, lag.sum_ms, lag.max_ms) == (
            len(minute_values),
            minute_values.sum(),
            minute_values.max(),
        )
        digest = lag.digest
        assert digest is not None
        percentiles.add("all", [digest.to_bytes()])
    measured = percentiles.get("all")
    for quantile, level in QUANTILES.items():
        assert measured[quantile] == pytest.approx(float(numpy.quantile(values, level)), rel=0.01), quantile


def test_merging_the_queues_of_a_process_keeps_the_digest_small() -> None:
    summaries = [LagSummary() for _ in range(50)]
    for number, lag in enumerate(summaries):
        lag.add([number * 10 + n for n in range(1_000)])
    digest = merge_digests(summaries)
    assert digest is not None
    assert digest.n_centroids <= MAX_CENTROIDS * 1.2
    assert digest.n_values == 50_000


def test_without_values_there_are_no_percentiles() -> None:
    assert LagSummary().digest is None
    assert merge_digests([LagSummary()]) is None
    assert LagPercentiles().get("unknown") == {"p50": None, "p95": None, "p99": None}
