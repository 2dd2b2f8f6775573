"""The checker finds every planted violation, and accepts what the guarantees allow."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from chaos.checker import Guarantee, check_history

from tests.unit.chaos.written_history import OUT, QUEUE, WATCHED, WrittenHistory

Scenario = Callable[[WrittenHistory], None]


def lose_a_push(h: WrittenHistory) -> None:
    h.push("a", "b")
    h.stored("a")


def lose_a_repeated_push(h: WrittenHistory) -> None:
    h.push("a", outcome="unknown")
    h.push("a")
    h.stored()


def store_twice(h: WrittenHistory) -> None:
    h.push("a", outcome="unknown")
    h.push("a")
    h.stored("a", "a")


def invent_a_message(h: WrittenHistory) -> None:
    h.stored("a")


def store_a_refused_push(h: WrittenHistory) -> None:
    h.push("a", outcome="fail")
    h.stored("a")


def deliver_another_payload(h: WrittenHistory) -> None:
    h.push("a")
    h.pop("1", "a").result["messages"][0]["data"] = "b"
    h.stored("a")


def swap_pushes(h: WrittenHistory) -> None:
    h.push("a")
    h.push("b")
    h.stored("b", "a")


def swap_items_of_a_push(h: WrittenHistory) -> None:
    h.push("a", "b")
    h.stored("b", "a")


def deliver_out_of_order(h: WrittenHistory) -> None:
    h.push("a", "b")
    h.pop("1", "b", "a")
    h.stored("a", "b")


def skip_a_message(h: WrittenHistory) -> None:
    h.push("a", "b")
    h.pop("1", "b")
    h.stored("a", "b")


def skip_after_a_refused_ack(h: WrittenHistory) -> None:
    h.push("a", "b")
    h.pop("1", "a")
    h.advance(5)
    h.ack("1", "a", success=False)
    h.pop("2", "b")
    h.stored("a", "b")


def skip_a_failed_message(h: WrittenHistory) -> None:
    h.push("a", "b")
    h.pop("1", "a")
    h.ack("1", "a", status="failed")
    h.pop("2", "b")
    h.stored("a", "b")


def deliver_an_acked_message(h: WrittenHistory) -> None:
    h.push("a")
    h.pop("1", "a")
    h.ack("1", "a")
    h.pop("2", "a")
    h.stored("a")


def deliver_again_after_the_ack_that_followed_a_seek(h: WrittenHistory) -> None:
    h.push("a")
    h.pop("1", "a")
    h.seek(to_end=False)
    h.pop("2", "a")
    h.ack("2", "a")
    h.pop("3", "a")
    h.stored("a")


def lease_twice(h: WrittenHistory) -> None:
    h.push("a")
    h.pop("1", "a")
    h.pop("2", "a")
    h.stored("a")


def lease_an_extended_lease(h: WrittenHistory) -> None:
    h.push("a")
    h.pop("1", "a")
    h.advance(2)
    h.extend("1")
    h.advance(2)
    h.pop("2", "a")
    h.stored("a")


def lease_after_a_partial_ack(h: WrittenHistory) -> None:
    h.push("a", "b")
    h.pop("1", "a", "b")
    h.ack("1", "b")
    h.pop("2", "a")
    h.stored("a", "b")


def lose_an_old_lease_in_a_crash(h: WrittenHistory) -> None:
    h.push("a")
    h.pop("1", "a")
    h.extend("1")
    h.advance(2.1)
    h.extend("1")
    h.advance(2.1)
    h.crash()
    h.now -= 1.2  # the pop follows while the last extension lasts
    h.pop("2", "a")
    h.stored("a")


def lease_twice_after_a_step_of_another_clock(h: WrittenHistory) -> None:
    h.push("a")
    h.pop("1", "a")
    h.crash("valkey clock stepped")
    h.pop("2", "a")
    h.stored("a")


def lease_twice_after_a_step_of_the_clock(h: WrittenHistory) -> None:
    h.push("a")
    h.crash("postgres clock stepped")
    h.pop("1", "a")
    h.pop("2", "a")
    h.stored("a")


def exceed_the_limit_after_a_step_of_the_clock(h: WrittenHistory) -> None:
    h.enqueue({"key t": "t", "key u": "u"})
    h.crash("valkey clock stepped")
    h.dequeue(1, "t")
    h.dequeue(2, "u")


def accept_an_ack_under_a_lease_that_a_step_ended(h: WrittenHistory) -> None:
    h.push("a")
    h.pop("1", "a")
    h.crash("postgres clock stepped")
    h.pop("2", "a")
    h.ack("1", "a")
    h.stored("a")


def accept_an_ack_under_a_lost_lease(h: WrittenHistory) -> None:
    h.push("a")
    h.pop("1", "a")
    h.advance(5)
    h.pop("2", "a")
    h.ack("1", "a")
    h.stored("a")


def accept_a_task_ack_under_a_lost_token(h: WrittenHistory) -> None:
    h.enqueue({"key t": "t"})
    h.dequeue(1, "t")
    h.advance(5)
    h.dequeue(2, "t")
    h.task("ack", "t", 1)


def commit_the_acks_alone(h: WrittenHistory) -> None:
    h.push("a")
    h.pop("1", "a", group="movers")
    h.move("1", "a", outcome="unknown")
    h.ack("1", "a", group="movers")
    h.stored("a")
    h.stored(queue=OUT)


def bury_a_moved_message(h: WrittenHistory) -> None:
    h.push("a")
    h.pop("1", "a", group="movers")
    h.move("1", "a", outcome="unknown")
    h.stored("a")
    h.stored("a", queue=OUT)
    h.dead_letters("a", group="movers")


def show_a_push_before_its_commit(h: WrittenHistory) -> None:
    h.push("a")
    h.pop("1", "a", group="movers")
    h.move("1", "a", outcome="unknown")
    h.pop("2", "a", group="readers", queue=OUT)
    h.advance(5)
    h.pop("3", "a", group="movers")
    h.stored("a")
    h.stored("a", queue=OUT)


def show_a_message_that_is_rolled_back(h: WrittenHistory) -> None:
    h.push("a", outcome="unknown")
    h.pop("1", "a")
    h.stored()


def store_a_rolled_back_push(h: WrittenHistory) -> None:
    h.push("a")
    h.pop("1", "a", group="movers")
    h.move("1", "a", outcome="fail", prefix="rolled-back ")
    h.stored("a")
    h.stored("rolled-back a", queue=OUT)


def miscount_dead_letters(h: WrittenHistory) -> None:
    h.push("a")
    h.pop("1", "a")
    h.ack("1", "a", status="dlq")
    h.stored("a")
    h.dead_letters("a", counted=2)


def forget_a_dead_letter(h: WrittenHistory) -> None:
    h.push("a")
    h.pop("1", "a")
    h.ack("1", "a", status="dlq")
    h.stored("a")
    h.dead_letters()


def bury_an_acked_message(h: WrittenHistory) -> None:
    h.push("a")
    h.pop("1", "a")
    h.ack("1", "a")
    h.stored("a")
    h.dead_letters("a")


def lose_a_task(h: WrittenHistory) -> None:
    h.enqueue({"key t": "t"})
    h.run_queue()


def make_two_tasks_of_a_key(h: WrittenHistory) -> None:
    h.enqueue({"key t": "t"})
    h.enqueue({"key t": "u"})


def run_an_acked_task(h: WrittenHistory) -> None:
    h.enqueue({"key t": "t"})
    h.dequeue(1, "t")
    h.task("ack", "t", 1)
    h.dequeue(2, "t")


def hand_out_a_held_task(h: WrittenHistory) -> None:
    h.enqueue({"key t": "t"}, queue="chaos.tasks")
    h.dequeue(1, "t", queue="chaos.tasks")
    h.dequeue(2, "t", queue="chaos.tasks")


def shrink_a_token(h: WrittenHistory) -> None:
    h.enqueue({"key t": "t"})
    h.dequeue(2, "t")
    h.advance(5)
    h.dequeue(1, "t")


def exceed_the_limit(h: WrittenHistory) -> None:
    h.enqueue({"key t": "t", "key u": "u"})
    h.dequeue(1, "t")
    h.dequeue(2, "u")


def exceed_the_limit_during_a_heartbeat(h: WrittenHistory) -> None:
    h.enqueue({"key t": "t", "key u": "u"})
    h.dequeue(1, "t")
    h.advance(1.5)
    h.task("heartbeat", "t", 1)
    h.advance(1)
    h.dequeue(2, "u")


def miscount_dead_tasks(h: WrittenHistory) -> None:
    h.run_queue("t", dead=2)


def lose_counts(h: WrittenHistory) -> None:
    h.push("a", "b")
    h.stored("a", "b", completed=0)
    h.series(QUEUE, enqueued=1)


def count_twice(h: WrittenHistory) -> None:
    h.push("a")
    h.stored("a")
    h.series(QUEUE, enqueued=2, lost=5)


def lose_counts_of_tasks(h: WrittenHistory) -> None:
    h.enqueue({"key t": "t"})
    h.series("chaos.single", enqueued=0)


OPENED, RESOLVED = ("n1", "opened", "sent"), ("n2", "resolved", "sent")


def fire_too_late(h: WrittenHistory) -> None:
    h.push("a", queue=WATCHED)
    h.watched("fires", outcome="fail")


def resolve_too_late(h: WrittenHistory) -> None:
    h.watched("resolves", outcome="fail")


def fire_for_an_empty_queue(h: WrittenHistory) -> None:
    h.watched("resolves")
    h.webhook("n1")
    h.alerts([OPENED], opened_at=h.now)
    h.push("a", queue=WATCHED)


def forget_an_incident(h: WrittenHistory) -> None:
    h.push("a", queue=WATCHED)
    h.watched("fires", "other")
    h.webhook("n1")
    h.alerts([OPENED])


def write_two_notices_of_a_transition(h: WrittenHistory) -> None:
    h.webhook("n1")
    h.webhook("n2")
    h.alerts([OPENED, ("n2", "opened", "sent")])


def write_no_notice_of_an_incident(h: WrittenHistory) -> None:
    h.alerts([])


def write_no_notice_of_the_end(h: WrittenHistory) -> None:
    h.webhook("n1")
    h.alerts([OPENED], resolved_at=12.0)


def send_a_received_notice_again(h: WrittenHistory) -> None:
    h.webhook("n1")
    h.advance(8)
    h.crash()
    h.webhook("n1")
    h.alerts([OPENED])


def lose_a_sent_notice(h: WrittenHistory) -> None:
    h.webhook("n1", outcome="fail")
    h.alerts([OPENED])


def send_a_notice_that_is_not_stored(h: WrittenHistory) -> None:
    h.webhook("n1")
    h.webhook("n3", "update 1")
    h.alerts([OPENED])


def send_the_end_first(h: WrittenHistory) -> None:
    h.webhook("n2", "resolved")
    h.webhook("n1")
    h.alerts([OPENED, RESOLVED], resolved_at=12.0)


def send_without_a_signature(h: WrittenHistory) -> None:
    h.webhook("n1", signed=False)
    h.alerts([OPENED])


VIOLATIONS: list[tuple[Scenario, Guarantee]] = [
    (lose_a_push, Guarantee.STORED_ONCE),
    (lose_a_repeated_push, Guarantee.STORED_ONCE),
    (store_twice, Guarantee.STORED_ONCE),
    (invent_a_message, Guarantee.NOTHING_INVENTED),
    (store_a_refused_push, Guarantee.NOTHING_INVENTED),
    (deliver_another_payload, Guarantee.NOTHING_INVENTED),
    (swap_pushes, Guarantee.PUSH_ORDER),
    (swap_items_of_a_push, Guarantee.PUSH_ORDER),
    (deliver_out_of_order, Guarantee.DELIVERY_ORDER),
    (skip_a_message, Guarantee.DELIVERY_ORDER),
    (skip_after_a_refused_ack, Guarantee.DELIVERY_ORDER),
    (skip_a_failed_message, Guarantee.DELIVERY_ORDER),
    (deliver_an_acked_message, Guarantee.ACKED_ONCE),
    (deliver_again_after_the_ack_that_followed_a_seek, Guarantee.ACKED_ONCE),
    (lease_twice, Guarantee.ONE_LEASE),
    (lease_an_extended_lease, Guarantee.ONE_LEASE),
    (lease_after_a_partial_ack, Guarantee.ONE_LEASE),
    (lose_an_old_lease_in_a_crash, Guarantee.ONE_LEASE),
    (lease_twice_after_a_step_of_another_clock, Guarantee.ONE_LEASE),
    (lease_twice_after_a_step_of_the_clock, Guarantee.ONE_LEASE),
    (exceed_the_limit_after_a_step_of_the_clock, Guarantee.TASK_LIMIT),
    (accept_an_ack_under_a_lease_that_a_step_ended, Guarantee.FENCING),
    (accept_an_ack_under_a_lost_lease, Guarantee.FENCING),
    (accept_a_task_ack_under_a_lost_token, Guarantee.FENCING),
    (commit_the_acks_alone, Guarantee.ATOMIC),
    (bury_a_moved_message, Guarantee.ATOMIC),
    (show_a_push_before_its_commit, Guarantee.COMMITTED),
    (show_a_message_that_is_rolled_back, Guarantee.COMMITTED),
    (store_a_rolled_back_push, Guarantee.NOTHING_INVENTED),
    (miscount_dead_letters, Guarantee.DEAD_LETTERS),
    (forget_a_dead_letter, Guarantee.DEAD_LETTERS),
    (bury_an_acked_message, Guarantee.DEAD_LETTERS),
    (lose_a_task, Guarantee.TASK_KEPT),
    (make_two_tasks_of_a_key, Guarantee.TASK_ONCE),
    (run_an_acked_task, Guarantee.TASK_ACKED_ONCE),
    (hand_out_a_held_task, Guarantee.TASK_LEASE),
    (shrink_a_token, Guarantee.TASK_LEASE),
    (exceed_the_limit, Guarantee.TASK_LIMIT),
    (exceed_the_limit_during_a_heartbeat, Guarantee.TASK_LIMIT),
    (miscount_dead_tasks, Guarantee.TASK_DEAD),
    (lose_counts, Guarantee.SERIES),
    (count_twice, Guarantee.SERIES),
    (lose_counts_of_tasks, Guarantee.SERIES),
    (fire_too_late, Guarantee.ALERT_FIRES),
    (resolve_too_late, Guarantee.ALERT_FIRES),
    (fire_for_an_empty_queue, Guarantee.ALERT_FIRES),
    (forget_an_incident, Guarantee.ALERT_FIRES),
    (write_two_notices_of_a_transition, Guarantee.ALERT_ONCE),
    (write_no_notice_of_an_incident, Guarantee.ALERT_ONCE),
    (write_no_notice_of_the_end, Guarantee.ALERT_ONCE),
    (send_a_received_notice_again, Guarantee.ALERT_ONCE),
    (lose_a_sent_notice, Guarantee.ALERT_RECEIVED),
    (send_a_notice_that_is_not_stored, Guarantee.ALERT_RECEIVED),
    (send_the_end_first, Guarantee.ALERT_RECEIVED),
    (send_without_a_signature, Guarantee.ALERT_RECEIVED),
]


@pytest.mark.parametrize(
    ("scenario", "guarantee"), VIOLATIONS, ids=lambda value: getattr(value, "__name__", "")
)
def test_the_checker_finds_a_planted_violation(scenario: Scenario, guarantee: Guarantee) -> None:
    written = WrittenHistory()
    scenario(written)
    assert {violation.guarantee for violation in check_history(written.history).violations} == {guarantee}


def test_every_guarantee_has_a_planted_violation() -> None:
    assert {guarantee for _, guarantee in VIOLATIONS} == set(Guarantee)


def repeat_an_unknown_push(h: WrittenHistory) -> None:
    h.push("a", outcome="unknown")
    h.push("b", outcome="unknown")
    h.push("a")
    h.stored("b", "a")


def leave_an_unknown_push_out(h: WrittenHistory) -> None:
    h.push("a", outcome="unknown")
    h.push("b")
    h.stored("b")


def deliver_again_after_an_unknown_ack(h: WrittenHistory) -> None:
    h.push("a", "b")
    h.pop("1", "a")
    h.ack("1", "a", outcome="unknown")
    h.advance(5)
    h.pop("2", "a", "b")
    h.stored("a", "b")


def go_on_after_an_unknown_ack(h: WrittenHistory) -> None:
    h.push("a", "b")
    h.pop("1", "a")
    h.ack("1", "a", outcome="unknown")
    h.pop("2", "b")
    h.stored("a", "b")


def rewind_by_a_seek(h: WrittenHistory) -> None:
    h.push("a")
    h.pop("1", "a")
    h.ack("1", "a")
    h.seek(to_end=False)
    h.pop("2", "a")
    h.stored("a")


def skip_by_a_seek(h: WrittenHistory) -> None:
    h.push("a", "b")
    h.seek(to_end=True, outcome="unknown")
    h.push("c")
    h.pop("1", "c")
    h.stored("a", "b", "c")


def skip_a_dead_message(h: WrittenHistory) -> None:
    h.push("a", "b")
    h.pop("1", "a")
    h.advance(5)
    h.pop("2", "b")
    h.stored("a", "b")
    h.dead_letters("a")


def lease_again_after_expiry(h: WrittenHistory) -> None:
    h.push("a")
    h.pop("1", "a")
    h.advance(4)
    h.pop("2", "a")
    h.ack("1", "a", success=False)
    h.ack("2", "a")
    h.stored("a")


def lose_a_new_lease_in_a_crash(h: WrittenHistory) -> None:
    h.push("a")
    h.pop("1", "a")
    h.crash()
    h.pop("2", "a")
    h.stored("a")


def end_leases_by_a_step_of_the_clock(h: WrittenHistory) -> None:
    h.push("a")
    h.pop("1", "a")
    h.crash("postgres clock stepped + valkey clock stepped")
    h.pop("2", "a")
    h.stored("a")
    h.enqueue({"key t": "t", "key u": "u"})
    h.dequeue(1, "t")
    h.crash("valkey clock stepped")
    h.dequeue(2, "t")
    h.task("ack", "t", 2)
    h.dequeue(3, "u")


def move_by_an_unknown_transaction(h: WrittenHistory) -> None:
    h.push("a", "b")
    h.pop("1", "a", group="movers")
    h.move("1", "a", outcome="unknown")
    h.pop("2", "b", group="movers")
    h.move("2", "b")
    h.stored("a", "b", completed=2)
    h.stored("a", "b", queue=OUT)
    h.series(QUEUE, enqueued=2, completed=2)


def return_a_task_after_its_deadline(h: WrittenHistory) -> None:
    h.enqueue({"key t": "t", "key u": "u"})
    h.dequeue(1, "t")
    h.advance(3)
    h.dequeue(2, "t")
    h.task("ack", "t", 1, outcome="fail")
    h.task("ack", "t", 2)
    h.dequeue(3, "u")
    h.task("ack", "u", 3, outcome="unknown")
    h.run_queue()
    h.series("chaos.single", enqueued=2)


def report_lost_counts(h: WrittenHistory) -> None:
    h.push("a", "b")
    h.stored("a", "b")
    h.series(QUEUE, enqueued=1, lost=1)


def repeat_a_notice_until_it_is_received(h: WrittenHistory) -> None:
    h.push("a", queue=WATCHED)
    h.watched("fires", "i")
    h.webhook("n1", outcome="fail")
    h.webhook("n1", outcome="unknown")
    h.webhook("n1")
    h.watched("resolves")
    h.webhook("n2", "resolved")
    h.alerts([OPENED, RESOLVED], opened_at=10.3, resolved_at=12.0)


def repeat_a_notice_after_a_fault(h: WrittenHistory) -> None:
    h.webhook("n1")
    h.crash("alerts killed")
    h.advance(60)
    h.webhook("n1")
    h.alerts([OPENED])


def keep_a_notice_pending(h: WrittenHistory) -> None:
    h.webhook("n1", outcome="fail")
    h.alerts([("n1", "opened", "pending")])


@pytest.mark.parametrize(
    "scenario",
    [
        repeat_an_unknown_push,
        leave_an_unknown_push_out,
        deliver_again_after_an_unknown_ack,
        go_on_after_an_unknown_ack,
        rewind_by_a_seek,
        skip_by_a_seek,
        skip_a_dead_message,
        lease_again_after_expiry,
        lose_a_new_lease_in_a_crash,
        end_leases_by_a_step_of_the_clock,
        move_by_an_unknown_transaction,
        return_a_task_after_its_deadline,
        report_lost_counts,
        repeat_a_notice_until_it_is_received,
        repeat_a_notice_after_a_fault,
        keep_a_notice_pending,
    ],
    ids=lambda scenario: scenario.__name__,
)
def test_the_checker_accepts_what_the_guarantees_allow(scenario: Scenario) -> None:
    written = WrittenHistory()
    scenario(written)
    findings = check_history(written.history)
    assert findings.violations == []
    assert findings.checked.total() > 0
