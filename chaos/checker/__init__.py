"""Check a history against the guarantees of the platform.

As in Jepsen, an operation without a clear answer may have taken effect at any time after it was sent, or
never. A check reports only what no such assumption can explain.
"""

from __future__ import annotations

from chaos.checker.alerts import check_alerts
from chaos.checker.dead_letters import check_dead_letters
from chaos.checker.deliveries import check_deliveries
from chaos.checker.findings import NEED_PIPELINE, Findings, Guarantee, Violation
from chaos.checker.leases import check_leases
from chaos.checker.message_log import check_log
from chaos.checker.series import check_series
from chaos.checker.tasks import check_tasks
from chaos.checker.transactions import check_transactions
from chaos.history import History

CHECKS = (
    check_log,
    check_deliveries,
    check_leases,
    check_transactions,
    check_dead_letters,
    check_tasks,
    check_series,
    check_alerts,
)

__all__ = ["NEED_PIPELINE", "Findings", "Guarantee", "Violation", "check_history"]


def check_history(history: History) -> Findings:
    findings = Findings()
    for check in CHECKS:
        check(history, findings)
    return findings
