-- settle_position_v1: finish and return messages of a position, leased or not, as next_position_state_v1 computes.
-- Runs under the caller's lock on the position.
-- Returns: whether the position has no lease any more.
CREATE OR REPLACE FUNCTION settle_position_v1(
    p_partition_id bigint, p_group_id bigint, p_finished int8multirange, p_returned int8multirange,
    p_now timestamptz
) RETURNS boolean
LANGUAGE plpgsql AS $$   -- not sql: its plan is cached
#variable_conflict use_column
DECLARE
    v_released boolean;
BEGIN
    WITH new_state AS MATERIALIZED (
        SELECT n.*, t.queue_id, n.cursor - p.cursor AS messages
        FROM positions p
        JOIN partitions t ON t.id = p.partition_id
        JOIN queues q ON q.id = t.queue_id
        CROSS JOIN LATERAL next_position_state_v1(
            p.partition_id, p.cursor, p.finished + p_finished, q.delay_ms, p_now, p.attempts, p.ready_at,
            p_lease_id => p.lease_id, p_lease_to => p.lease_to, p_returned => p.returned + p_returned,
            p_retry_delay_ms => q.retry_delay_ms) n
        WHERE p.partition_id = p_partition_id AND p.group_id = p_group_id
    ), position_rows AS (
        UPDATE positions p SET cursor = n.cursor, finished = n.finished, returned = n.returned, attempts = n.attempts,
               lease_id = n.lease_id, ready_at = n.ready_at
        FROM new_state n WHERE p.partition_id = p_partition_id AND p.group_id = p_group_id
    ), tally_rows AS (
        INSERT INTO tallies AS y (queue_id, group_id, slot, messages)
        SELECT n.queue_id, p_group_id, tally_slot_v1(), n.messages FROM new_state n WHERE n.messages > 0
        ON CONFLICT (queue_id, group_id, slot) DO UPDATE SET messages = y.messages + excluded.messages
    )
    SELECT n.lease_id IS NULL INTO v_released FROM new_state n;
    RETURN v_released;
END $$;
