"""Compare every change of a position over random histories with `next_position_state_v1`.

A trigger records the row before and after each update. The test derives from both rows which messages the
update finished and returned; from these and the row before, the function must compute the row after. So a
function that repeats the rule, as `ack_completed_v1` does, cannot differ from it. All pops must start
leases in the same way.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import rule, run_state_machine_as_test

from penstock.durable.pool import Database
from tests.integration.durable.checked_queue import LEASE_MS
from tests.integration.durable.test_log_state_machine import QueueMachine, steps

State = dict[str, Any]

RECORD_CHANGES = """
    CREATE TABLE position_changes (id bigint GENERATED ALWAYS AS IDENTITY, before positions, after positions);
    CREATE FUNCTION record_position_change() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO position_changes (before, after) VALUES (OLD, NEW);
        RETURN NULL;
    END $$;
    CREATE TRIGGER position_changes AFTER UPDATE ON positions
        FOR EACH ROW WHEN (OLD IS DISTINCT FROM NEW) EXECUTE FUNCTION record_position_change();
"""

# When a lease ends, those of its messages that are not finished were returned.
TAKE_CHANGES = """
    WITH changes AS (
        DELETE FROM position_changes RETURNING *
    ), with_finished AS (
        SELECT c.*, (c.before).*, t.next_offset, q.delay_ms, q.retry_delay_ms,
               (c.before).finished + (c.after).finished + int8multirange(int8range(
                   (c.before).cursor, greatest((c.before).cursor, (c.after).cursor))) AS all_finished
        FROM changes c
        JOIN partitions t ON t.id = (c.before).partition_id
        JOIN queues q ON q.id = t.queue_id
    ), with_returned AS (
        SELECT f.*, f.returned + CASE
                   WHEN f.lease_id IS NULL THEN '{}'
                   WHEN (f.after).lease_id IS NOT NULL THEN (f.after).returned
                   ELSE int8multirange(int8range(f.cursor, greatest(f.cursor, f.lease_to))) - f.all_finished
                   END AS all_returned
        FROM with_finished f
    )
    SELECT to_jsonb(r.before) AS before, to_jsonb(r.after) AS after, to_jsonb(r.next_offset) AS next_offset,
           to_jsonb($1::timestamptz) AS now, to_jsonb($1 + $2 * interval '1 millisecond') AS expires_at,
           to_jsonb(settled) AS settled, to_jsonb(expired) AS expired, to_jsonb(auto_acked) AS auto_acked,
           to_jsonb(released) AS released, to_jsonb(moved) AS moved
    FROM with_returned r
    CROSS JOIN LATERAL next_position_state_v1(
        r.partition_id, r.cursor, r.all_finished, r.delay_ms, $1, r.attempts, r.ready_at,
        p_lease_id => r.lease_id, p_lease_to => r.lease_to, p_returned => r.all_returned,
        p_retry_delay_ms => r.retry_delay_ms) settled
    CROSS JOIN LATERAL next_position_state_v1(
        r.partition_id, r.cursor, r.all_finished, r.delay_ms, $1, r.attempts, r.ready_at) expired
    CROSS JOIN LATERAL next_position_state_v1(
        r.partition_id, r.cursor, r.all_finished, r.delay_ms, $1, r.attempts) auto_acked
    CROSS JOIN LATERAL next_position_state_v1(
        r.partition_id, r.cursor, r.finished, 0, $1, r.attempts) released
    CROSS JOIN LATERAL next_position_state_v1(
        r.partition_id, (r.after).cursor, (r.after).finished, r.delay_ms, $1,
        p_next_offset => r.next_offset) moved
    ORDER BY r.id
"""

STATE = ("cursor", "finished", "returned", "attempts", "lease_id", "ready_at")
POP_RESULTS = ["settled", "expired", "auto_acked"]
RESULTS = {
    "seek": ["moved"],
    "release": ["released"],
    **dict.fromkeys(("pop", "pop_batch", "pop_singly", "pop_and_crash"), POP_RESULTS),
}
"""The calls of the function that may explain a change, by step; other steps settle the position."""


def changed_columns(before: State, after: State) -> set[str]:
    return {name for name in STATE if before[name] != after[name]}


def started_lease(before: State, now: str, expires_at: str) -> State:
    """Return the columns of a position after a pop leased messages of it."""
    attempts, singly_until = dict(before["attempts"]), before["redeliver_singly_until"]
    if before["lease_id"]:  # a lease that expired
        singly_until = max(singly_until, before["lease_to"])
        if before["lease_to"] - before["lease_from"] == 1 and before["lease_from"] == before["cursor"]:
            head = str(before["cursor"])
            attempts[head] = attempts.get(head, 0) + 1
    return {
        **{name: before[name] for name in ("cursor", "finished")},
        "returned": "{}",
        "attempts": attempts,
        "redeliver_singly_until": singly_until,
        "ready_at": expires_at,
        "leased_at": now,
        "lease_expires_at": expires_at,
        "lease_from": before["cursor"],
    }


class PositionMachine(QueueMachine):
    """Checks the changes of all positions after each step."""

    checked: Counter[str]

    @rule(step=steps)
    def run_step(self, step: tuple[str, dict[str, Any]]) -> None:
        now = self.queue.timestamp  # a step may change it at its end
        name, arguments = step
        getattr(self.queue, name)(**arguments)
        for row in self.runner.run(self.database.fetch(TAKE_CHANGES, now, LEASE_MS)):
            change = {key: json.loads(value) for key, value in row.items()}
            self.checked[f"{name}: {self.check(name, change)}"] += 1

    def check(self, step: str, change: State) -> str:
        """Check one change; return what it was."""
        before, after = change["before"], change["after"]
        changed = changed_columns(before, after)
        if after["lease_id"] and "lease_id" in changed:
            expected = started_lease(before, change["now"], change["expires_at"])
            assert {column: after[column] for column in expected} == expected
            assert after["cursor"] < after["lease_to"] <= change["next_offset"]
            return "lease started"
        if after["ready_at"] is None and changed <= {"ready_at", "lease_id"}:
            assert after["cursor"] >= change["next_offset"]
            return "empty"
        if changed <= {"ready_at"}:
            return "rescheduled"
        if changed == {"attempts"} and after["lease_id"]:
            return "failed attempt"  # ack_v1 then returns the message
        results = RESULTS.get(step, ["settled"])
        state = {column: after[column] for column in STATE}
        matching = [result for result in results if change[result] == state]
        assert matching, f"{step} changed {before} to {state}, not {[change[result] for result in results]}"
        return matching[0]

    def queue_matches_model(self) -> None:
        """The other test compares the queue with its model."""

    def teardown(self) -> None:
        """Later changes are not checked."""


async def record_changes(database: Database) -> None:
    async with database.connection() as connection:
        await connection.execute(RECORD_CHANGES)


def test_every_change_of_a_position_follows_the_one_rule(database_url: str) -> None:
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        database = Database(database_url, 1)

        class Machine(PositionMachine):
            """The state machine with the runner and database of this test."""

        Machine.runner, Machine.database, Machine.checked = runner, database, Counter()
        try:
            runner.run(record_changes(database))
            run_state_machine_as_test(
                Machine,
                settings=settings(
                    max_examples=60,
                    stateful_step_count=50,
                    derandomize=True,
                    database=None,
                    deadline=None,
                    phases=[Phase.generate, Phase.shrink],
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(database.close())
    assert set(Machine.checked) >= {
        *("ack_whole_pop: settled", "ack_some: settled", "transact: settled", "release: released"),
        # The three places that start a lease: pop_single_v1, and the fast and the general path of pop_v1.
        *("pop_singly: lease started", "pop_batch: lease started", "pop: lease started"),
        *("pop_singly: settled", "pop_singly: expired", "pop: auto_acked"),
        *("delete: settled", "declare_dead: settled", "seek: moved"),
    }
