"""Leases of durable queues: one at a time per position, and a lost one changes nothing."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from chaos.checker.deliveries import Position, acks_of, deliveries_of
from chaos.checker.findings import Findings, Guarantee
from chaos.history import Call, History
from chaos.schedule import POSTGRES_CRASHES

CRASH_LOSS_S = 2.0
"""A pop does not wait for the disk, so a lease taken this long before a crash may be lost."""


@dataclass(slots=True)
class HeldLease:
    """A lease on one position: it is certainly held from `since` until `until`."""

    id: str
    call: Call
    remaining: set[str]
    since: float
    until: float
    ended_at: float = math.inf
    """When a call was sent that may have ended it."""
    acks: list[tuple[Call, bool | None]] = field(default_factory=list)


def check_leases(history: History, findings: Findings) -> None:
    for (queue, partition, group), leases in read_leases(history).items():
        name = f"{queue}/{partition}/{group}"
        ordered = sorted(leases, key=lambda lease: lease.call.completed_at)
        for index, lease in enumerate(ordered):
            _check_exclusive(name, lease, ordered[index + 1 :], findings)
            _check_fencing(name, lease, ordered[index + 1 :], findings)


def certain_end(history: History, server: str, since: float, until: float) -> float:
    """Return until when a lease is certainly held, because a step of its server's clock may end it early."""
    for fault in history.faults:
        if f"{server} clock" in fault.kind and fault.began_at <= until and fault.ended_at >= since:
            until = fault.began_at
    return until


def read_leases(history: History) -> dict[Position, list[HeldLease]]:
    """Return the leases of each position with the time during which they were certainly held."""
    crashes = [
        (fault.began_at - CRASH_LOSS_S, fault.ended_at)
        for fault in history.faults
        if any(kind in fault.kind for kind in POSTGRES_CRASHES)
    ]

    def may_be_lost(at: float) -> bool:
        return any(since <= at <= until for since, until in crashes)

    leases: dict[Position, list[HeldLease]] = defaultdict(list)
    by_id: dict[tuple[str, str], HeldLease] = {}
    for call in history.select("pop"):
        for partition, delivery in deliveries_of(call).items():
            lease_id = call.result["messages"][0]["leaseId"]
            until = -math.inf if may_be_lost(call.completed_at) else call.invoked_at + call.args["lease_s"]
            lease = HeldLease(lease_id, call, set(delivery.transaction_ids), call.completed_at, until)
            leases[call.args["queue"], partition, call.args["group"]].append(lease)
            by_id[lease_id, partition] = lease
    _add_changes(history, leases, by_id, may_be_lost)
    for lease in by_id.values():
        lease.until = certain_end(history, "postgres", lease.since, lease.until)
    return leases


def _add_changes(
    history: History,
    leases: dict[Position, list[HeldLease]],
    by_id: dict[tuple[str, str], HeldLease],
    may_be_lost: Callable[[float], bool],
) -> None:
    """Apply extensions, acks and seeks to the leases, in the order in which they were sent."""
    for call in history.calls:
        if call.op == "extend" and call.ok and not may_be_lost(call.completed_at):
            for (lease_id, _), lease in by_id.items():
                if lease_id == call.args["lease"]:
                    lease.until = max(lease.until, call.invoked_at + call.args["seconds"])
        elif call.op in ("ack", "transaction"):
            for ack, success in acks_of(call):
                acked_lease = by_id.get((ack["leaseId"], ack["partition"]))
                if acked_lease is not None:
                    _apply_ack(acked_lease, call, ack, success)
        elif call.op == "seek":
            for (queue, _, group), position_leases in leases.items():
                if (queue, group) == (call.args["queue"], call.args["group"]):
                    for lease in position_leases:
                        # A seek of an unknown outcome may end any later lease.
                        if call.possible and call.completed_at >= lease.call.invoked_at:
                            lease.ended_at = min(lease.ended_at, call.invoked_at)


def _apply_ack(lease: HeldLease, call: Call, ack: dict[str, Any], success: bool | None) -> None:
    lease.acks.append((call, success))
    lease.remaining.discard(ack["transactionId"])
    if ack["status"] != "completed" or not lease.remaining:
        lease.ended_at = min(lease.ended_at, call.invoked_at)


def _check_exclusive(name: str, lease: HeldLease, others: list[HeldLease], findings: Findings) -> None:
    """No other lease is taken while this one is certainly held."""
    until = min(lease.until, lease.ended_at)
    for other in others:
        if other.id == lease.id or other.call.completed_at > until:
            continue
        findings.check(
            Guarantee.ONE_LEASE,
            other.call.invoked_at <= lease.since,
            f"{name}: {other.id} was taken at {other.since:.3f}, {lease.id} is held until {until:.3f}",
            lease.call.id,
            other.call.id,
        )
    findings.checked[Guarantee.ONE_LEASE] += 1


def _check_fencing(name: str, lease: HeldLease, others: list[HeldLease], findings: Findings) -> None:
    """No ack under this lease succeeds once another one was certainly taken after it."""
    successors = [other for other in others if other.id != lease.id and other.call.invoked_at > lease.since]
    replaced_at = min((other.since for other in successors), default=math.inf)
    for call, success in lease.acks:
        findings.check(
            Guarantee.FENCING,
            not (success and call.invoked_at > replaced_at),
            f"{name}: an ack under {lease.id} succeeded after another consumer got the partition",
            lease.call.id,
            call.id,
        )
