-- group_lag_v1: count the partitions in which a group has unfinished messages.
-- Returns: `behind` is that number; `oldest_at` is when the oldest unfinished message was pushed.
-- Cost: one index probe per such partition, independent of the number of messages.
CREATE OR REPLACE FUNCTION group_lag_v1(p_group_id bigint) RETURNS TABLE (behind bigint, oldest_at timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT count(*), min(h.created_at)
    FROM positions p
    JOIN partitions t ON t.id = p.partition_id
    CROSS JOIN LATERAL (
        SELECT l.created_at FROM log l
        WHERE l.partition_id = p.partition_id AND l.first_offset <= greatest(p.cursor, t.low_offset)
        ORDER BY l.first_offset DESC LIMIT 1
    ) h
    WHERE p.group_id = p_group_id AND p.ready_at IS NOT NULL AND greatest(p.cursor, t.low_offset) < t.next_offset
$$;
