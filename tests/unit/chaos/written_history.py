"""Write histories call by call, for tests of the checker. Every call takes a tenth of a second."""

from __future__ import annotations

from typing import Any

from chaos.history import Call, FaultSpan, History, Outcome

QUEUE, OUT, PARTITION, WATCHED = "chaos", "chaos.out", "p0", "chaos.watched"


class WrittenHistory:
    """A history in which calls follow each other, unless they say when they happened."""

    def __init__(self) -> None:
        self.history = History()
        self.now = 10.0

    def call(
        self, op: str, args: dict[str, Any], result: dict[str, Any] | None = None, outcome: Outcome = "ok"
    ) -> Call:
        self.now += 0.1
        call = Call(len(self.history.calls) + 1, "client", op, args, self.now, outcome=outcome)
        self.now += 0.1
        call.result = result or {}
        if outcome != "unknown":
            call.completed_at = self.now
        self.history.calls.append(call)
        return call

    def push(self, *ids: str, outcome: Outcome = "ok", queue: str = QUEUE) -> Call:
        items = [
            {"queue": queue, "partition": PARTITION, "transactionId": tid, "payload": tid} for tid in ids
        ]
        return self.call("push", {"items": items}, {"statuses": ["queued"] * len(ids)}, outcome)

    def pop(self, lease: str, *ids: str, group: str = "ackers", queue: str = QUEUE) -> Call:
        messages = [
            {"transactionId": tid, "partition": PARTITION, "data": tid, "leaseId": lease, "retryCount": 0}
            for tid in ids
        ]
        return self.call("pop", {"queue": queue, "group": group, "lease_s": 3.0}, {"messages": messages})

    def ack(
        self,
        lease: str,
        *ids: str,
        group: str = "ackers",
        status: str = "completed",
        success: bool = True,
        outcome: Outcome = "ok",
    ) -> Call:
        result = {"successes": [success] * len(ids), "dead": [status == "dlq"] * len(ids)}
        args = {"queue": QUEUE, "group": group, "acks": _acks(lease, ids, status)}
        return self.call("ack", args, result if outcome == "ok" else {}, outcome)

    def move(self, lease: str, *ids: str, outcome: Outcome = "ok", prefix: str = "") -> Call:
        """A transaction that acks messages and pushes them to the output queue."""
        items = [
            {"queue": OUT, "partition": PARTITION, "transactionId": prefix + tid, "payload": tid}
            for tid in ids
        ]
        args = {"queue": QUEUE, "group": "movers", "acks": _acks(lease, ids, "completed"), "items": items}
        return self.call("transaction", args, outcome=outcome)

    def seek(self, *, to_end: bool, outcome: Outcome = "ok", group: str = "ackers") -> Call:
        return self.call("seek", {"queue": QUEUE, "group": group, "to_end": to_end}, outcome=outcome)

    def extend(self, lease: str) -> Call:
        return self.call("extend", {"lease": lease, "seconds": 3.0})

    def enqueue(self, keys: dict[str, str], queue: str = "chaos.single") -> Call:
        """Enqueue tasks; `keys` maps idempotency keys to the ids of their tasks."""
        return self.call("enqueue", {"queue": queue, "keys": list(keys)}, {"ids": list(keys.values())})

    def dequeue(self, token: int, *ids: str, queue: str = "chaos.single") -> Call:
        tasks = [{"id": task, "token": token, "payload": f"key {task}", "attempt": 1} for task in ids]
        return self.call("dequeue", {"queue": queue, "visibility_s": 2.0}, {"tasks": tasks})

    def task(self, verb: str, task: str, token: int, outcome: Outcome = "ok") -> Call:
        args = {"queue": "chaos.single", "id": task, "token": token, "visibilityMs": 2000}
        return self.call(f"task {verb}", args, outcome=outcome)

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def crash(self, kind: str = "postgres killed") -> None:
        self.now += 0.1
        self.history.faults.append(FaultSpan(kind, self.now, self.now + 1))
        self.now += 1.1

    def stored(self, *ids: str, queue: str = QUEUE, completed: int = 0) -> None:
        """What the log holds at the end."""
        result = {"partitions": {PARTITION: list(ids)}, "completed": completed}
        self.call("final log", {"queue": queue}, result)

    def dead_letters(self, *ids: str, counted: int | None = None, group: str = "ackers") -> None:
        letters = [
            {
                "kind": "durable",
                "queue": QUEUE,
                "partition": PARTITION,
                "consumerGroup": group,
                "transactionId": tid,
            }
            for tid in ids
        ]
        counts = [[QUEUE, group, len(ids) if counted is None else counted]]
        self.call("final dead letters", {}, {"letters": letters, "counts": counts})

    def run_queue(self, *dead_ids: str, dead: int | None = None) -> None:
        counts = {"depth": 0, "delayed": 0, "running": 0, "dead": len(dead_ids) if dead is None else dead}
        self.call("final run queue", {"queue": "chaos.single"}, counts | {"dead_ids": list(dead_ids)})

    def series(self, queue: str, **sums: int) -> None:
        figures = {"enqueued": 0, "completed": 0, "lost": 0} | sums
        self.call("final series", {"queue": queue}, {"tiers": {"5s": figures, "1m": figures, "1h": figures}})

    def webhook(
        self,
        notice: str,
        transition: str = "opened",
        incident: str = "i",
        *,
        signed: bool = True,
        outcome: Outcome = "ok",
    ) -> Call:
        args = {"id": notice, "incident": incident, "transition": transition, "signed": signed}
        return self.call("webhook", args, outcome=outcome)

    def watched(self, op: str, *incidents: str, outcome: Outcome = "ok") -> Call:
        """The watched queue is seen to be in alert, or no longer."""
        return self.call(f"alert {op}", {"queue": WATCHED}, {"incidents": list(incidents)}, outcome)

    def alerts(
        self,
        notices: list[tuple[str, str, str]],
        *,
        incident: str = "i",
        opened_at: float = 10.0,
        resolved_at: float | None = None,
    ) -> None:
        """One incident, and its notices as (id, transition, state)."""
        incidents = [{"id": incident, "opened_at": opened_at, "resolved_at": resolved_at}]
        stored = [
            {"id": notice, "incident": incident, "transition": transition, "state": state}
            for notice, transition, state in notices
        ]
        self.call("final alerts", {}, {"incidents": incidents, "notices": stored})


def _acks(lease: str, ids: tuple[str, ...], status: str) -> list[dict[str, Any]]:
    return [{"transactionId": tid, "partition": PARTITION, "leaseId": lease, "status": status} for tid in ids]
