"""Percentiles from digests that were folded, written and merged are close to the exact ones."""

from __future__ import annotations

import numpy
import pytest

from penstock.broker.self_metrics.lag import CENTROIDS, QUANTILES, Lag, Percentiles, merged

VALUES = 60_000
_random = numpy.random.default_rng(8)

DISTRIBUTIONS = {
    "even": _random.uniform(100, 10_000, VALUES),
    "skewed": _random.lognormal(6, 1.2, VALUES),
    "heavy tail": (_random.pareto(1.5, VALUES) + 1) * 500,
    "two humps": numpy.where(
        _random.random(VALUES) < 0.9, _random.normal(400, 40, VALUES), _random.normal(50_000, 4_000, VALUES)
    ),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_percentiles_are_within_one_percent(name: str) -> None:
    """As it happens: three workers, ten minutes each, values that come in small lists."""
    values = numpy.round(DISTRIBUTIONS[name]).astype(int)
    percentiles = Percentiles()
    for of_minute in numpy.array_split(values, 30):
        lag = Lag()
        for popped in numpy.array_split(of_minute, 50):
            lag.add(popped.tolist())
        assert (lag.count, lag.sum_ms, lag.max_ms) == (len(of_minute), of_minute.sum(), of_minute.max())
        digest = lag.digest
        assert digest is not None
        percentiles.add("all", [digest.to_bytes()])
    found = percentiles.of("all")
    for quantile, level in QUANTILES.items():
        assert found[quantile] == pytest.approx(float(numpy.quantile(values, level)), rel=0.01), quantile


def test_merging_the_queues_of_a_process_keeps_the_digest_small() -> None:
    lags = [Lag() for _ in range(50)]
    for number, lag in enumerate(lags):
        lag.add([number * 10 + n for n in range(1_000)])
    digest = merged(lags)
    assert digest is not None
    assert digest.n_centroids <= CENTROIDS * 1.2
    assert digest.n_values == 50_000


def test_nothing_has_no_percentiles() -> None:
    assert Lag().digest is None
    assert merged([Lag()]) is None
    assert Percentiles().of("nobody") == {"p50": None, "p95": None, "p99": None}
