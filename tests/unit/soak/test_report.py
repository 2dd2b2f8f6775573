"""A series that grows, and a load that met an error, fail a soak; a run that is too short is not judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from soak.bounds import find_bound
from soak.load import Rates
from soak.report import build_report, has_failed, write_results
from soak.run import SoakOptions, SoakResult

LOAD_S = 1_800.0
OPTIONS = SoakOptions(1, 0.5, LOAD_S, LOAD_S / 3, 1.0, 5.0, 240.0)


def soaked(growing: str = "", *, load_s: float = LOAD_S) -> SoakResult:
    """A run in which every series rises until the end of the warm-up, and `growing` after it too."""
    result = SoakResult(capacity=Rates(100, 50))
    names = ("memory.broker", "index.positions", "connections.postgres sessions", "stream.metrics:queue:0")
    for number in range(int(load_s / 5)):
        time_s = number * 5.0
        warm = min(time_s / load_s * 3, 1.0)
        result.times_s.append(time_s)
        result.samples.append(dict.fromkeys(names, 10000 * warm))
        if growing:
            result.samples[-1][growing] += time_s * 20
    return result


def test_series_that_rise_during_the_warm_up_only_pass() -> None:
    report = build_report(OPTIONS, soaked())
    assert report["growing"] == []
    assert not has_failed(report)


@pytest.mark.parametrize(
    "name", ["memory.broker", "index.positions", "connections.postgres sessions", "stream.metrics:queue:0"]
)
def test_a_series_that_grows_after_the_warm_up_fails_the_run(name: str) -> None:
    report = build_report(OPTIONS, soaked(name))
    assert report["growing"] == [name]
    assert report["series"][name]["growth"] > report["series"][name]["allowed"]
    assert has_failed(report)


def test_an_error_of_the_load_fails_the_run() -> None:
    result = soaked()
    result.problems.append("The broker responded with 500.")
    assert has_failed(build_report(OPTIONS, result))


def test_a_short_run_is_not_judged() -> None:
    options = SoakOptions(1, 0.5, 60.0, 20.0, 1.0, 5.0, 240.0)
    report = build_report(options, soaked("memory.broker", load_s=60))
    assert set(report["verdicts"]["memory"]) == {"not judged"}
    assert not has_failed(report)


def test_a_series_without_a_bound_is_refused() -> None:
    with pytest.raises(LookupError, match=r"soak/bounds\.py"):
        find_bound("unheard.of")


def test_results_are_json_with_samples_and_a_plot(tmp_path: Path) -> None:
    result = soaked("memory.broker")
    path = write_results(build_report(OPTIONS, result), result, tmp_path)
    written = json.loads(path.read_text())
    assert written["growing"] == ["memory.broker"]
    assert 2 < len(written["samples"]["memory.broker"]) <= 60
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
