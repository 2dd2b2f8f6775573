"""Alerts: they fire with their queue, and a transition is one notice, not sent again once it was received."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from chaos.checker.findings import Findings, Guarantee
from chaos.history import Call, History
from chaos.message_load import WATCHED

UNRECORDED_CAUSES = ("alerts", "webhook link", "postgres", "supervisor", "disk", "migration", "upgrade")
"""Faults that may keep a sender from recording a delivery, which another attempt then repeats."""
RECORD_S = 5.0
"""How soon after its confirmation a sender records a delivery."""


@dataclass(slots=True)
class Incident:
    """An incident with its notices."""

    id: str
    opened_at: float
    resolved_at: float | None
    notices: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    """By transition."""


def check_alerts(history: History, findings: Findings) -> None:
    deliveries: dict[str, list[Call]] = defaultdict(list)
    for call in history.select("webhook"):
        deliveries[call.args["id"]].append(call)
        findings.check(
            Guarantee.ALERT_RECEIVED, call.args["signed"], f"{call.args['id']} is not signed", call.id
        )
    for call in history.select("alert fires", "alert resolves"):
        findings.check(
            Guarantee.ALERT_FIRES,
            call.outcome != "fail",
            f"{call.args['queue']}: no {call.op.replace('alert ', '')} was seen in time",
            call.id,
        )
    for notice_id, calls in deliveries.items():
        _check_not_repeated(history, notice_id, calls, findings)
    for final in history.select("final alerts"):
        incidents = _read_incidents(final)
        _check_notices(final, incidents, deliveries, findings)
        _check_expected(history, incidents, findings)


def _read_incidents(final: Call) -> list[Incident]:
    incidents = {
        row["id"]: Incident(row["id"], row["opened_at"], row["resolved_at"])
        for row in final.result["incidents"]
    }
    for notice in final.result["notices"]:
        if notice["incident"] in incidents:
            incidents[notice["incident"]].notices[notice["transition"]].append(notice)
    return list(incidents.values())


def _check_not_repeated(history: History, notice_id: str, calls: list[Call], findings: Findings) -> None:
    """A delivery that was answered with 2xx is the last one, unless a fault kept it from being recorded."""
    for index, call in enumerate(calls):
        later = [other for other in calls[index + 1 :] if other.invoked_at > call.completed_at]
        excused = any(
            any(cause in fault.kind for cause in UNRECORDED_CAUSES)
            and fault.began_at <= call.completed_at + RECORD_S
            and fault.ended_at >= call.invoked_at
            for fault in history.faults
        )
        findings.check(
            Guarantee.ALERT_ONCE,
            not (call.ok and later) or excused,
            f"{notice_id} was delivered at {call.completed_at:.3f} and sent again",
            call.id,
            *(other.id for other in later),
        )


def _check_notices(
    final: Call, incidents: list[Incident], deliveries: dict[str, list[Call]], findings: Findings
) -> None:
    stored = {notice["id"]: notice for notice in final.result["notices"]}
    for incident in incidents:
        expected = ["opened", *(["resolved"] if incident.resolved_at is not None else [])]
        for transition in {*expected, *incident.notices}:
            count = len(incident.notices.get(transition, ()))
            findings.check(
                Guarantee.ALERT_ONCE,
                count == 1,
                f"incident {incident.id} has {count} notices {transition}",
            )
        _check_order(incident, deliveries, findings)
    for notice_id, calls in deliveries.items():
        notice = stored.get(notice_id, {"incident": "", "transition": ""})
        for call in calls:
            findings.check(
                Guarantee.ALERT_RECEIVED,
                (notice["incident"], notice["transition"])
                == (call.args["incident"], call.args["transition"]),
                f"{notice_id} was delivered and is not a notice of {call.args['incident']}",
                call.id,
            )
    for notice_id, notice in stored.items():
        findings.check(
            Guarantee.ALERT_RECEIVED,
            notice["state"] != "sent" or any(call.possible for call in deliveries.get(notice_id, ())),
            f"{notice_id} ({notice['transition']}) is stored as sent and was not received",
        )


def _check_order(incident: Incident, deliveries: dict[str, list[Call]], findings: Findings) -> None:
    """The end of an incident is not delivered before its beginning may have been."""
    first: dict[str, float] = {}
    for transition, notices in incident.notices.items():
        calls = [call for notice in notices for call in deliveries.get(notice["id"], ()) if call.possible]
        first[transition] = min((call.invoked_at for call in calls), default=math.inf)
    for transition, at in first.items():
        if transition != "opened" and at < math.inf:
            findings.check(
                Guarantee.ALERT_RECEIVED,
                first.get("opened", math.inf) <= at,
                f"incident {incident.id}: {transition} was delivered before opened",
            )


def _check_expected(history: History, incidents: list[Incident], findings: Findings) -> None:
    """No incident opens while the queue is empty: from the end of an alert until the next push."""
    pushes = [call.invoked_at for call in history.select("push") if call.args["items"][0]["queue"] == WATCHED]
    for drained in history.select("alert resolves"):
        if not drained.ok:
            continue
        filled_at = min((at for at in pushes if at > drained.completed_at), default=math.inf)
        unexpected = [i.id for i in incidents if drained.completed_at < i.opened_at < filled_at]
        findings.check(
            Guarantee.ALERT_FIRES,
            not unexpected,
            f"{WATCHED}: {unexpected} opened after {drained.completed_at:.3f} and before the next push",
            drained.id,
        )
    for fired in history.select("alert fires"):
        stored = {incident.id for incident in incidents}
        findings.check(
            Guarantee.ALERT_FIRES,
            stored.issuperset(fired.result.get("incidents", ())),
            f"{WATCHED}: an incident that was open is not stored",
            fired.id,
        )
