-- expire_positions_v1: move positions past messages that were pushed at or before p_cutoff.
-- Runs under the caller's lock on the positions, none of which has a lease in force; an expired lease ends.
-- Returns: the offset ranges skipped, without those the group had finished before.
-- Cost: reads each expired segment once per group, because the cursor moves past it.
CREATE OR REPLACE FUNCTION expire_positions_v1(
    p_group_id bigint, p_partition_ids bigint[], p_cutoff timestamptz, p_now timestamptz
) RETURNS TABLE (partition_id bigint, expired_from bigint, expired_to bigint)
LANGUAGE sql AS $$
    WITH stale AS (
        SELECT p.*, t.low_offset, t.queue_id, coalesce((
                   SELECT l.first_offset FROM log l
                   WHERE l.partition_id = p.partition_id AND l.first_offset > p.cursor AND l.created_at > p_cutoff
                   ORDER BY l.first_offset LIMIT 1), t.next_offset) AS first_live_offset
        FROM positions p JOIN partitions t ON t.id = p.partition_id
        WHERE p.group_id = p_group_id AND p.partition_id = ANY (p_partition_ids)
          AND message_created_at_v1(p.partition_id, greatest(p.cursor, t.low_offset)) <= p_cutoff
    ), expired AS MATERIALIZED (
        SELECT n.*, s.partition_id, s.queue_id, n.cursor - s.cursor AS messages,
               int8multirange(int8range(greatest(s.cursor, s.low_offset), s.first_live_offset)) - s.finished AS skipped
        FROM stale s
        JOIN queues q ON q.id = s.queue_id
        CROSS JOIN LATERAL next_position_state_v1(
            s.partition_id, s.cursor, s.finished + int8multirange(int8range(s.cursor, s.first_live_offset)),
            q.delay_ms, p_now, s.attempts, s.ready_at) n
    ), moved AS (
        UPDATE positions p SET cursor = s.cursor, finished = s.finished, returned = s.returned, attempts = s.attempts,
               lease_id = s.lease_id, ready_at = s.ready_at
        FROM expired s WHERE p.group_id = p_group_id AND p.partition_id = s.partition_id
    ), tally_rows AS (
        INSERT INTO tallies AS y (queue_id, group_id, slot, messages)
        SELECT s.queue_id, p_group_id, tally_slot_v1(), sum(s.messages) FROM expired s GROUP BY s.queue_id
        ON CONFLICT (queue_id, group_id, slot) DO UPDATE SET messages = y.messages + excluded.messages
    )
    SELECT s.partition_id, lower(r), upper(r) FROM expired s CROSS JOIN LATERAL unnest(s.skipped) r
$$;
