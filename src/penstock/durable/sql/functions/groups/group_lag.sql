-- group_lag_v1: in how many partitions a group has something unfinished, and when the oldest of it was pushed.
-- One index probe per such partition, whatever the number of messages.
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
