"""Transactions: their acks and pushes take effect together, and nothing of a failed one is ever visible."""

from __future__ import annotations

from collections import defaultdict

from chaos.checker.deliveries import read_positions
from chaos.checker.findings import Findings, Guarantee
from chaos.checker.message_log import stored_logs
from chaos.history import Call, History


def check_transactions(history: History, findings: Findings) -> None:
    logs = stored_logs(history)
    positions = read_positions(history)
    if not any(history.select("final log")):
        return
    possible = _possible_transactions(history)
    seen_at = _first_seen(history)
    for (queue, partition, group, transaction_id), calls in possible.items():
        out_queue, out_partition, out_id = _output_of(calls[0], transaction_id)
        stored = out_id in logs.get((out_queue, out_partition), ())
        position = positions[queue, partition, group]
        name = f"{queue}/{partition}/{group}: {transaction_id}"
        acked = transaction_id in position.acked
        findings.check(
            Guarantee.ATOMIC,
            stored or not acked,
            f"{name} was acked by a transaction whose push is not stored",
            *(call.id for call in calls),
        )
        findings.check(
            Guarantee.ATOMIC,
            not (stored and transaction_id in position.dead),
            f"{name} is dead although the transaction that acked it took effect",
            *(call.id for call in calls),
        )
        visible_at = seen_at.get((out_queue, out_partition, out_id))
        if visible_at is None:
            continue
        again = [
            delivery.call.id
            for delivery in position.deliveries
            if delivery.call.invoked_at > visible_at and transaction_id in delivery.transaction_ids
        ]
        findings.check(
            Guarantee.COMMITTED,
            not again,
            f"{name} was delivered again after the push of the same transaction was visible",
            *again,
        )


def _possible_transactions(history: History) -> dict[tuple[str, str, str, str], list[Call]]:
    """Return the transactions that may have acked each message."""
    calls: dict[tuple[str, str, str, str], list[Call]] = defaultdict(list)
    for call in history.select("transaction"):
        if not call.possible:
            continue
        for ack in call.args["acks"]:
            key = (call.args["queue"], ack["partition"], call.args["group"], ack["transactionId"])
            calls[key].append(call)
    # Transactions with a broken part push under other ids: their outcome shows nothing about the message.
    return {
        key: good for key, all_calls in calls.items() if (good := [c for c in all_calls if not _is_broken(c)])
    }


def _is_broken(call: Call) -> bool:
    return any(item["transactionId"].startswith("rolled-back ") for item in call.args["items"])


def _output_of(call: Call, transaction_id: str) -> tuple[str, str, str]:
    """Return queue, partition and id of the message that the transaction pushes for an acked one."""
    acked = [ack["transactionId"] for ack in call.args["acks"]]
    item = call.args["items"][acked.index(transaction_id)]
    return item["queue"], item["partition"], item["transactionId"]


def _first_seen(history: History) -> dict[tuple[str, str, str], float]:
    """Return when each message was first delivered to any group."""
    seen: dict[tuple[str, str, str], float] = {}
    for call in history.select("pop"):
        for message in call.result.get("messages", ()):
            key = (call.args["queue"], message["partition"], message["transactionId"])
            seen[key] = min(seen.get(key, call.completed_at), call.completed_at)
    return seen
