"""What groups get: messages in order, none skipped, none again after its ack."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from chaos.checker.findings import Findings, Guarantee
from chaos.checker.message_log import stored_logs
from chaos.history import Call, History

Position = tuple[str, str, str]
"""A queue, a partition and a consumer group."""

FINISHING = ("completed", "dlq")


@dataclass(slots=True)
class Delivery:
    """The messages of one partition in one pop."""

    call: Call
    transaction_ids: list[str]


@dataclass(slots=True)
class PositionHistory:
    """What happened to one position, each list in the order of the history."""

    deliveries: list[Delivery] = field(default_factory=list)
    finishes: list[tuple[float, str]] = field(default_factory=list)
    """When an ack that may have finished a message was sent."""
    acked: dict[str, list[Call]] = field(default_factory=lambda: defaultdict(list))
    """The calls that were answered as finishing a message."""
    seeks: list[Call] = field(default_factory=list)
    dead: set[str] = field(default_factory=set)

    def may_be_rewound(self, since: float, until: float) -> bool:
        """Whether a seek back may have taken effect between two times."""
        return any(
            not seek.args["to_end"] and seek.invoked_at <= until and seek.completed_at >= since
            for seek in self.seeks
        )

    def may_be_forwarded(self, until: float) -> bool:
        return any(seek.args["to_end"] and seek.invoked_at <= until for seek in self.seeks)


def acks_of(call: Call) -> Iterator[tuple[dict[str, Any], bool | None]]:
    """Yield each ack of a call and whether it succeeded; None if that is unknown."""
    acks = call.args["acks"]
    if call.outcome == "unknown":
        yield from ((ack, None) for ack in acks)
    elif call.outcome == "fail":
        yield from ((ack, False) for ack in acks)
    else:
        yield from zip(acks, call.result.get("successes", [True] * len(acks)), strict=True)


def deliveries_of(call: Call) -> dict[str, Delivery]:
    """Return the delivery of each partition in a pop."""
    by_partition: dict[str, Delivery] = {}
    for message in call.result.get("messages", ()):
        delivery = by_partition.setdefault(message["partition"], Delivery(call, []))
        delivery.transaction_ids.append(message["transactionId"])
    return by_partition


def read_positions(history: History) -> dict[Position, PositionHistory]:
    positions: dict[Position, PositionHistory] = defaultdict(PositionHistory)
    for call in history.calls:
        if call.op == "pop":
            for partition, delivery in deliveries_of(call).items():
                positions[call.args["queue"], partition, call.args["group"]].deliveries.append(delivery)
        elif call.op in ("ack", "transaction"):
            _add_finishes(call, positions)
        elif call.op == "final dead letters":
            for letter in call.result["letters"]:
                if letter["kind"] == "durable":
                    position = (letter["queue"], letter["partition"], letter["consumerGroup"])
                    positions[position].dead.add(letter["transactionId"])
    for seek in history.select("seek"):
        for (queue, _, group), position_history in positions.items():
            if seek.possible and (queue, group) == (seek.args["queue"], seek.args["group"]):
                position_history.seeks.append(seek)
    return positions


def _add_finishes(call: Call, positions: dict[Position, PositionHistory]) -> None:
    for ack, success in acks_of(call):
        if ack["status"] not in FINISHING or success is False:
            continue
        position = positions[call.args["queue"], ack["partition"], call.args["group"]]
        transaction_id = ack["transactionId"]
        position.finishes.append((call.invoked_at, transaction_id))
        if success:
            position.acked[transaction_id].append(call)


def check_deliveries(history: History, findings: Findings) -> None:
    logs = stored_logs(history)
    for (queue, partition, group), position in read_positions(history).items():
        log = logs.get((queue, partition), [])
        name = f"{queue}/{partition}/{group}"
        _check_acked_once(name, position, findings)
        _check_order(name, log, position, findings)
    for call in history.select("pop"):
        for message in call.result.get("messages", ()):
            findings.check(
                Guarantee.NOTHING_INVENTED,
                message["data"] == message["transactionId"].removeprefix("rolled-back "),
                f"{message['transactionId']} was delivered with the payload {message['data']!r}",
                call.id,
            )


def _check_acked_once(name: str, position: PositionHistory, findings: Findings) -> None:
    for delivery in position.deliveries:
        for transaction_id in delivery.transaction_ids:
            acks = position.acked.get(transaction_id, ())
            earlier = [ack for ack in acks if ack.completed_at < delivery.call.invoked_at]
            if not earlier:
                continue
            last = max(earlier, key=lambda ack: ack.completed_at)
            findings.check(
                Guarantee.ACKED_ONCE,
                position.may_be_rewound(last.invoked_at, delivery.call.completed_at),
                f"{name}: {transaction_id} was acked at {last.completed_at:.3f} and delivered again",
                last.id,
                delivery.call.id,
            )
    # An acked message that does not come again is a checked fact too.
    findings.checked[Guarantee.ACKED_ONCE] += len(position.acked)


def _check_order(name: str, log: list[str], position: PositionHistory, findings: Findings) -> None:
    """Every delivery is in order, and each earlier message is in it or may be finished."""
    indexes = {transaction_id: index for index, transaction_id in enumerate(log)}
    finishes = sorted(position.finishes)
    finished = set(position.dead)
    next_finish = first_unfinished = 0
    for delivery in sorted(position.deliveries, key=lambda d: d.call.completed_at):
        completed_at = delivery.call.completed_at
        numbers = []
        for transaction_id in delivery.transaction_ids:
            findings.check(
                Guarantee.COMMITTED,
                transaction_id in indexes,
                f"{name}: {transaction_id} was delivered and is not stored",
                delivery.call.id,
            )
            numbers.append(indexes.get(transaction_id, -1))
        findings.check(
            Guarantee.DELIVERY_ORDER,
            numbers == sorted(set(numbers)) or -1 in numbers,
            f"{name}: {delivery.transaction_ids} is not in the order of the log",
            delivery.call.id,
        )
        while next_finish < len(finishes) and finishes[next_finish][0] <= completed_at:
            finished.add(finishes[next_finish][1])
            next_finish += 1
        while first_unfinished < len(log) and log[first_unfinished] in finished:
            first_unfinished += 1
        skipped = [
            log[index]
            for index in range(first_unfinished, max(numbers))
            if log[index] not in finished and index not in numbers
        ]
        findings.check(
            Guarantee.DELIVERY_ORDER,
            not skipped or position.may_be_forwarded(completed_at),
            f"{name}: {delivery.transaction_ids} came before {skipped[:5]}",
            delivery.call.id,
        )
