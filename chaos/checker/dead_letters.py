"""Dead letters of durable queues: the counts are exact, and the messages those that were given up."""

from __future__ import annotations

from collections import Counter

from chaos.checker.deliveries import acks_of, read_positions
from chaos.checker.findings import Findings, Guarantee
from chaos.history import History


def check_dead_letters(history: History, findings: Findings) -> None:
    for call in history.select("final dead letters"):
        letters = call.result["letters"]
        listed = Counter((letter["queue"], letter["consumerGroup"]) for letter in letters)
        counted = {(queue, group): count for queue, group, count in call.result["counts"]}
        for key in listed.keys() | counted.keys():
            findings.check(
                Guarantee.DEAD_LETTERS,
                listed[key] == counted.get(key, 0),
                f"{key}: {listed[key]} dead letters are listed and {counted.get(key, 0)} counted",
            )
        _check_each(history, letters, findings)


def _check_each(history: History, letters: list[dict[str, str]], findings: Findings) -> None:
    copies = Counter(
        (letter["queue"], letter["partition"], letter["consumerGroup"], letter["transactionId"])
        for letter in letters
        if letter["kind"] == "durable"
    )
    for key, count in copies.items():
        findings.check(Guarantee.DEAD_LETTERS, count == 1, f"{key} is {count} dead letters")
    for (queue, partition, group), position in read_positions(history).items():
        if position.seeks:
            continue  # a message that comes again after a seek may be acked and then given up
        completed = {
            ack["transactionId"]
            for call in history.select("ack", "transaction")
            if (call.args["queue"], call.args["group"]) == (queue, group)
            for ack, success in acks_of(call)
            if success and ack["status"] == "completed" and ack["partition"] == partition
        }
        for transaction_id in completed:
            findings.check(
                Guarantee.DEAD_LETTERS,
                transaction_id not in position.dead,
                f"{queue}/{partition}/{group}: {transaction_id} was acked and is dead",
            )
    for call in history.select("ack"):
        dead = call.result.get("dead", ())
        for ack, is_dead in zip(call.args["acks"], dead, strict=False):
            key = (call.args["queue"], ack["partition"], call.args["group"], ack["transactionId"])
            if is_dead:
                findings.check(
                    Guarantee.DEAD_LETTERS,
                    key in copies,
                    f"{key} was answered as dead and is not listed",
                    call.id,
                )
