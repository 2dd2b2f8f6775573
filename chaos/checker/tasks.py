"""Run queues: limits, leases, tokens, idempotency keys, and what is left at the end."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from chaos.checker.findings import Findings, Guarantee
from chaos.checker.leases import certain_end
from chaos.history import Call, History
from chaos.task_load import LIMITS

ENDING = ("task ack", "task nack", "task give-back")


@dataclass(slots=True)
class TaskLease:
    """A task in the hands of a worker: it certainly runs from `since` until `until`."""

    task: str
    token: int
    call: Call
    since: float
    until: float


def check_tasks(history: History, findings: Findings) -> None:
    leases = read_task_leases(history)
    _check_limits(leases, findings)
    _check_exclusive(leases, findings)
    _check_acked_once(history, leases, findings)
    _check_keys(history, findings)
    _check_final(history, findings)


def read_task_leases(history: History) -> list[TaskLease]:
    by_token: dict[tuple[str, int], TaskLease] = {}
    for call in history.select("dequeue"):
        for task in call.result.get("tasks", ()):
            until = call.invoked_at + call.args["visibility_s"]
            lease = TaskLease(task["id"], task["token"], call, call.completed_at, until)
            by_token[task["id"], task["token"]] = lease
    ends: dict[tuple[str, int], float] = {}
    for call in history.calls:
        key = (call.args.get("id", ""), call.args.get("token", 0))
        if call.op == "task heartbeat" and call.ok and key in by_token:
            lease = by_token[key]
            lease.until = max(lease.until, call.invoked_at + call.args["visibilityMs"] / 1000)
        elif call.op in ENDING:
            ends[key] = min(ends.get(key, math.inf), call.invoked_at)
    for key, lease in by_token.items():
        until = min(lease.until, ends.get(key, math.inf))
        lease.until = certain_end(history, "valkey", lease.since, until)
    return list(by_token.values())


def _check_limits(leases: list[TaskLease], findings: Findings) -> None:
    """At no time do more tasks of a queue certainly run than its limit allows."""
    changes: dict[str, list[tuple[float, int, int]]] = defaultdict(list)
    for lease in leases:
        if lease.until > lease.since:
            queue = lease.call.args["queue"]
            changes[queue] += [(lease.since, 1, lease.call.id), (lease.until, -1, lease.call.id)]
    for queue, times in changes.items():
        running = 0
        for at, change, call in sorted(times):
            running += change
            if change > 0:
                findings.check(
                    Guarantee.TASK_LIMIT,
                    running <= LIMITS[queue],
                    f"{queue}: {running} tasks run at {at:.3f}, and the limit is {LIMITS[queue]}",
                    call,
                )


def _check_exclusive(leases: list[TaskLease], findings: Findings) -> None:
    by_task: dict[str, list[TaskLease]] = defaultdict(list)
    for lease in leases:
        by_task[lease.task].append(lease)
    for task, task_leases in by_task.items():
        task_leases.sort(key=lambda lease: lease.since)
        findings.checked[Guarantee.TASK_LEASE] += 1
        for first, second in pairwise(task_leases):
            if second.call.invoked_at <= first.since:
                continue
            calls = (first.call.id, second.call.id)
            findings.check(
                Guarantee.TASK_LEASE,
                second.since > first.until,
                f"{task} was handed out at {second.since:.3f} and is held until {first.until:.3f}",
                *calls,
            )
            findings.check(
                Guarantee.TASK_LEASE, second.token > first.token, f"{task}: its token does not grow", *calls
            )


def _check_acked_once(history: History, leases: list[TaskLease], findings: Findings) -> None:
    acked: dict[str, Call] = {}
    for call in history.select("task ack"):
        if call.ok and call.completed_at < getattr(acked.get(call.args["id"]), "completed_at", math.inf):
            acked[call.args["id"]] = call
    findings.checked[Guarantee.TASK_ACKED_ONCE] += len(acked)
    tokens: dict[str, int] = defaultdict(int)
    for lease in leases:
        ack = acked.get(lease.task)
        if ack is not None and lease.call.invoked_at > ack.completed_at:
            findings.check(
                Guarantee.TASK_ACKED_ONCE,
                False,
                f"{lease.task} was acked and runs again",
                ack.id,
                lease.call.id,
            )
        if ack is not None and lease.since < ack.invoked_at:
            tokens[lease.task] = max(tokens[lease.task], lease.token)
    for task, ack in acked.items():
        findings.check(
            Guarantee.FENCING,
            ack.args["token"] >= tokens[task],
            f"{task}: an ack succeeded after another worker got the task",
            ack.id,
        )


def _check_keys(history: History, findings: Findings) -> None:
    ids: dict[tuple[str, str], set[str]] = defaultdict(set)
    for call in history.select("enqueue"):
        for key, task in zip(call.args["keys"], call.result.get("ids", ()), strict=False):
            ids[call.args["queue"], key].add(task)
    for (queue, key), tasks in ids.items():
        findings.check(
            Guarantee.TASK_ONCE, len(tasks) == 1, f"{queue}: the key {key} made {len(tasks)} tasks"
        )
    keys: dict[str, set[str]] = defaultdict(set)
    for call in history.select("dequeue"):
        for task in call.result.get("tasks", ()):
            keys[task["payload"]].add(task["id"])
    for key, tasks in keys.items():
        findings.check(Guarantee.TASK_ONCE, len(tasks) == 1, f"the key {key} ran as {len(tasks)} tasks")


def _check_final(history: History, findings: Findings) -> None:
    """After draining, every acknowledged task was acked, or may have been, or is dead."""
    may_be_acked = {call.args["id"] for call in history.select("task ack") if call.possible}
    # A repeated ack whose first try took effect is answered with 404.
    tried = {call.args["id"] for call in history.select("task ack") if call.outcome == "unknown"}
    for final in history.select("final run queue"):
        queue, dead = final.args["queue"], final.result["dead_ids"]
        findings.check(
            Guarantee.TASK_DEAD,
            len(dead) == len(set(dead)) == final.result["dead"],
            f"{queue}: {len(dead)} dead tasks are listed and {final.result['dead']} counted",
        )
        left = final.result["depth"] + final.result["delayed"] + final.result["running"]
        for call in history.select("enqueue"):
            if not call.ok or call.args["queue"] != queue or left:
                continue
            for task in call.result["ids"]:
                findings.check(
                    Guarantee.TASK_KEPT,
                    task in may_be_acked or task in tried or task in dead,
                    f"{queue}: {task} was acknowledged, is not dead and no ack may have finished it",
                    call.id,
                )
