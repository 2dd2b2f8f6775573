"""What is stored at the end: every acknowledged message once, nothing else, in the order of the pushes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from chaos.checker.findings import Findings, Guarantee
from chaos.history import Call, History

Partition = tuple[str, str]
"""A queue and a partition of it."""


@dataclass(slots=True)
class PushedMessage:
    """All pushes of one transaction id to one partition."""

    first_invoked_at: float
    acked_at: float | None = None
    """When a push of it was first answered as stored."""
    call: int = 0


def stored_logs(history: History) -> dict[Partition, list[str]]:
    """Return the transaction ids of each partition at the end, in the order of their offsets."""
    return {
        (call.args["queue"], partition): ids
        for call in history.select("final log")
        for partition, ids in call.result["partitions"].items()
    }


def _pushed_items(call: Call) -> Iterator[tuple[Partition, str, bool]]:
    """Yield partition, transaction id and whether the answer says that it is stored."""
    items = call.args["items"]
    statuses = call.result.get("statuses", ["queued"] * len(items))
    for item, status in zip(items, statuses, strict=True):
        stored = call.ok and status in ("queued", "duplicate")
        yield (item["queue"], item["partition"]), item["transactionId"], stored


def pushed_messages(history: History) -> dict[Partition, dict[str, PushedMessage]]:
    """Return all messages that a push or a transaction may have stored."""
    pushed: dict[Partition, dict[str, PushedMessage]] = defaultdict(dict)
    for call in history.select("push", "transaction"):
        if not call.possible:
            continue
        for partition, transaction_id, stored in _pushed_items(call):
            message = pushed[partition].setdefault(transaction_id, PushedMessage(call.invoked_at))
            message.first_invoked_at = min(message.first_invoked_at, call.invoked_at)
            if stored and (message.acked_at is None or call.completed_at < message.acked_at):
                message.acked_at, message.call = call.completed_at, call.id
    return pushed


def check_log(history: History, findings: Findings) -> None:
    logs, pushed = stored_logs(history), pushed_messages(history)
    if not any(history.select("final log")):
        return
    for partition in logs.keys() | pushed.keys():
        log, messages = logs.get(partition, []), pushed.get(partition, {})
        counts = Counter(log)
        for transaction_id, count in counts.items():
            findings.check(
                Guarantee.NOTHING_INVENTED,
                transaction_id in messages,
                f"{partition}: {transaction_id} is stored and no push that may have succeeded sent it",
            )
            findings.check(
                Guarantee.STORED_ONCE, count == 1, f"{partition}: {transaction_id} is stored {count} times"
            )
        for transaction_id, message in messages.items():
            if message.acked_at is not None:
                findings.check(
                    Guarantee.STORED_ONCE,
                    transaction_id in counts,
                    f"{partition}: {transaction_id} was acknowledged and is not stored",
                    message.call,
                )
        _check_order(partition, log, messages, findings)
    _check_order_within_calls(history, logs, findings)


def _check_order(
    partition: Partition, log: list[str], messages: dict[str, PushedMessage], findings: Findings
) -> None:
    """A push that was sent after another one was acknowledged comes behind it.

    Going from the end, each message is compared with the earliest acknowledgement behind it.
    """
    earliest_ack = float("inf")
    earliest_id, earliest_call = "", 0
    for transaction_id in reversed(log):
        message = messages.get(transaction_id)
        if message is None:
            continue
        findings.check(
            Guarantee.PUSH_ORDER,
            message.first_invoked_at <= earliest_ack,
            f"{partition}: {transaction_id} is before {earliest_id}, which was acked before it was sent",
            earliest_call,
        )
        if message.acked_at is not None and message.acked_at < earliest_ack:
            earliest_ack, earliest_id, earliest_call = message.acked_at, transaction_id, message.call


def _check_order_within_calls(history: History, logs: dict[Partition, list[str]], findings: Findings) -> None:
    """Items of one push that are new are stored in the order of the items."""
    indexes = {partition: {tid: n for n, tid in enumerate(log)} for partition, log in logs.items()}
    for call in history.select("push"):
        if not call.ok or set(call.result["statuses"]) != {"queued"}:
            continue
        positions: dict[Partition, list[int]] = defaultdict(list)
        for partition, transaction_id, _ in _pushed_items(call):
            if transaction_id in indexes.get(partition, {}):
                positions[partition].append(indexes[partition][transaction_id])
        for partition, numbers in positions.items():
            findings.check(
                Guarantee.PUSH_ORDER,
                numbers == sorted(numbers),
                f"{partition}: items of one push are stored in another order",
                call.id,
            )
