-- unfinished_positions_v1: list the positions of a group that have unfinished messages.
-- Returns: `oldest_at` is when the oldest of these messages was pushed.
-- Cost: one index probe per such position, independent of the number of messages.
CREATE OR REPLACE FUNCTION unfinished_positions_v1(p_group_id bigint)
RETURNS TABLE (partition_id bigint, partition text, unfinished bigint, oldest_at timestamptz, leased_at timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT t.id, t.name, t.next_offset - greatest(p.cursor, t.low_offset), h.created_at, p.leased_at
    FROM positions p
    JOIN partitions t ON t.id = p.partition_id
    CROSS JOIN LATERAL (
        SELECT l.created_at FROM log l
        WHERE l.partition_id = p.partition_id AND l.first_offset <= greatest(p.cursor, t.low_offset)
        ORDER BY l.first_offset DESC LIMIT 1
    ) h
    WHERE p.group_id = p_group_id AND p.ready_at IS NOT NULL AND greatest(p.cursor, t.low_offset) < t.next_offset
$$;
