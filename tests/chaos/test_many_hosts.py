"""Brokers on three hosts behind HAProxy, of which one after the other is cut off under load.

Each host is a network namespace with a broker and a journal of its own; two have an alert process. One host
loses all its links, another one only the link to PostgreSQL and Valkey. Clients repeat what fails, as those
of `make chaos` do, and the same checker reads the history of all their calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from chaos.checker import NEED_PIPELINE, Findings, Guarantee, check_history
from chaos.history import read_history

from tests.chaos.cut_hosts import CUT_S, LOCAL_PUSHES, CutOff, Observations, run_experiment
from tests.chaos.host_cluster import HOSTS, host_cluster
from tests.chaos.load_balancer import find_haproxy
from tests.chaos.network_hosts import find_obstacle
from tests.deadlines import deadline_s
from tests.directories import memory_directory, temporary_directory

pytestmark = pytest.mark.timeout(300 + 2 * CUT_S)

FAILURE_DETECTION_S = 10
"""A connection without an acknowledgement fails after 5 s, and the probe that follows after 3 s."""
BACK_S = 20
"""The time after which a host is in use again. Failed connections are tried again within 6 s."""
WAKE_UP_S = 1


@pytest.fixture(scope="module")
def observations() -> Iterator[tuple[Observations, Findings]]:
    if find_haproxy() is None:
        pytest.skip(
            "HAProxy is not installed; run tools/test_program.sh haproxy to include the test of several hosts"
        )
    if obstacle := find_obstacle():
        pytest.skip(f"the test of several hosts needs what this machine lacks: {obstacle}")
    with temporary_directory(memory_directory()) as home:
        with host_cluster(home) as cluster:
            result = run_experiment(cluster, home / "history.jsonl")
        yield result, check_history(read_history(home / "history.jsonl"))


@pytest.fixture
def result(observations: tuple[Observations, Findings]) -> Observations:
    return observations[0]


@pytest.fixture
def isolated(result: Observations) -> CutOff:
    assert result.isolated is not None
    return result.isolated


@pytest.fixture
def without_servers(result: Observations) -> CutOff:
    assert result.without_servers is not None
    return result.without_servers


def test_every_guarantee_holds(observations: tuple[Observations, Findings]) -> None:
    """Order, leases, fencing, transactions and run queues, over all hosts."""
    result, findings = observations
    assert result.undrained is None
    assert findings.violations == []
    checked = {guarantee for guarantee in Guarantee if findings.checked[guarantee]}
    assert checked == set(Guarantee) - NEED_PIPELINE
    print(f"\n{result.load_s:.0f} s of load, calls: {result.calls}")


def test_haproxy_removes_a_host_that_is_cut_off(isolated: CutOff, without_servers: CutOff) -> None:
    for cut in (isolated, without_servers):
        print(f"\n{cut.host.name}: removed after {cut.removed_s:.1f} s, used again after {cut.back_s:.1f} s")
        assert cut.removed_s < deadline_s(FAILURE_DETECTION_S)
        assert cut.back_s < deadline_s(BACK_S)


def test_a_push_on_one_host_wakes_a_pop_on_another(result: Observations) -> None:
    print(f"\nslowest wake-ups: { {name: round(s, 3) for name, s in result.wakeups_s.items()} }")
    assert len(result.wakeups_s) >= HOSTS
    assert max(result.wakeups_s.values()) < deadline_s(WAKE_UP_S)


def test_a_host_that_is_back_is_woken_again(isolated: CutOff, without_servers: CutOff) -> None:
    for cut in (isolated, without_servers):
        print(f"\n{cut.host.name}: woken by another host {cut.woken_s:.1f} s after its return")
        assert cut.woken_s < deadline_s(BACK_S)


def test_a_client_on_a_host_that_is_cut_off_is_answered(result: Observations, isolated: CutOff) -> None:
    """Its pushes go to the journal in order, the first one when the failure is noticed; a pop is refused."""
    statuses = Counter(status for status, _ in isolated.local_pushes)
    seconds = [duration_s for _, duration_s in isolated.local_pushes]
    print(f"\npushes: {dict(statuses)}, the slowest took {max(seconds):.1f} s; the pop: {isolated.local_pop}")
    assert statuses == {202: LOCAL_PUSHES}
    assert max(seconds) < deadline_s(FAILURE_DETECTION_S)
    assert isolated.local_pop[0] == 503
    assert isolated.local_pop[1] < deadline_s(1)
    assert result.local_log == ["first", *map(str, range(LOCAL_PUSHES))]


def test_the_journal_of_a_host_without_servers_is_replayed(without_servers: CutOff) -> None:
    print(
        f"\n{without_servers.journal_records} records, replayed {without_servers.journal_empty_s:.1f} s"
        " after the return"
    )
    assert without_servers.journal_records > 0
    assert without_servers.journal_empty_s < deadline_s(BACK_S)


def test_self_metrics_of_all_hosts_are_right_again(
    result: Observations, isolated: CutOff, without_servers: CutOff
) -> None:
    """While a host is cut off its rows end. It keeps those it cannot write, and writes them afterwards."""
    rows = result.minute_rows
    assert set(rows) == {f"host-{number}" for number in range(1, HOSTS + 1)}
    for cut in (isolated, without_servers):
        print(f"\n{cut.host.name}: rows ended {cut.covered_behind_s:.1f} s before those of other hosts")
        assert cut.covered_behind_s > 0
        row = rows[cut.host.name]
        span_s = (row["covered_to"] - row["covered_from"]).total_seconds()
        assert row["covered_s"] == pytest.approx(span_s, abs=1)
    assert sum(row["push_messages"] for row in rows.values()) == result.stored_messages


def test_one_host_evaluates_alerts_and_every_incident_is_notified_once(result: Observations) -> None:
    print(f"\nanother host evaluated {result.takeover_s:.1f} s after the cut: {result.evaluators}")
    assert result.evaluators[:2] == ["host-1", "host-2"]
    assert len({notice_id for notice_id, _, _ in result.notices}) == len(result.notices)
    for rule in ("rule-before", "rule-during", "rule-after"):
        assert [kind for _, kind, body in result.notices if f'"{rule}"' in body] == ["alert.opened"], rule
