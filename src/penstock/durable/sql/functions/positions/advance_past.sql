-- advance_past_v1: move positions up to p_offsets, because their partitions no longer keep the messages below.
-- The messages skipped count as finished, so depth stays exact; next_position_state_v1 computes the rest.
-- Runs under the caller's locks on the partitions and their positions.
-- Returns: per queue and group the messages skipped without having been finished.
CREATE OR REPLACE FUNCTION advance_past_v1(p_partition_ids bigint[], p_offsets bigint[], p_now timestamptz)
RETURNS TABLE (queue_id bigint, group_id bigint, messages bigint)
LANGUAGE sql AS $$
    WITH new_state AS MATERIALIZED (
        SELECT n.*, p.partition_id, p.group_id, t.queue_id, n.cursor - p.cursor AS messages,
               (SELECT sum(upper(r) - lower(r)) FROM unnest(
                    int8multirange(int8range(p.cursor, o.low_offset)) - p.finished) r) AS unfinished
        FROM unnest(p_partition_ids, p_offsets) AS o (partition_id, low_offset)
        JOIN positions p ON p.partition_id = o.partition_id AND p.cursor < o.low_offset
        JOIN partitions t ON t.id = p.partition_id
        JOIN queues q ON q.id = t.queue_id
        CROSS JOIN LATERAL next_position_state_v1(
            p.partition_id, p.cursor, p.finished + int8multirange(int8range(p.cursor, o.low_offset)), q.delay_ms,
            p_now, p.attempts, p.ready_at, t.next_offset, p.lease_id, p.lease_to, p.returned, q.retry_delay_ms) n
    ), position_rows AS (
        UPDATE positions p SET cursor = n.cursor, finished = n.finished, returned = n.returned, attempts = n.attempts,
               lease_id = n.lease_id, ready_at = n.ready_at
        FROM new_state n WHERE p.partition_id = n.partition_id AND p.group_id = n.group_id
    ), tally_rows AS (
        INSERT INTO tallies AS y (queue_id, group_id, slot, messages)
        SELECT n.queue_id, n.group_id, tally_slot_v1(), sum(n.messages) FROM new_state n
        GROUP BY n.queue_id, n.group_id ORDER BY n.queue_id, n.group_id
        ON CONFLICT (queue_id, group_id, slot) DO UPDATE SET messages = y.messages + excluded.messages
    )
    SELECT n.queue_id, n.group_id, coalesce(sum(n.unfinished), 0)::bigint
    FROM new_state n GROUP BY n.queue_id, n.group_id
$$;
