-- lagging_positions_v1: list positions whose oldest unfinished message was pushed before p_before, the oldest first.
-- Cost: one index probe per position of the environment that has unfinished messages.
CREATE OR REPLACE FUNCTION lagging_positions_v1(
    p_organization text, p_project text, p_environment text, p_before timestamptz, p_limit int, p_offset int
) RETURNS TABLE (group_name text, queue text, partition text, partition_id bigint, unfinished bigint,
                 oldest_at timestamptz, leased_at timestamptz, total bigint)
LANGUAGE sql STABLE AS $$
    SELECT g.name, q.name, t.name, t.id, t.next_offset - greatest(p.cursor, t.low_offset), h.created_at,
           p.leased_at, count(*) OVER ()
    FROM queues q
    JOIN groups g ON g.queue_id = q.id
    JOIN positions p ON p.group_id = g.id AND p.ready_at IS NOT NULL
    JOIN partitions t ON t.id = p.partition_id
    CROSS JOIN LATERAL (
        SELECT l.created_at FROM log l
        WHERE l.partition_id = p.partition_id AND l.first_offset <= greatest(p.cursor, t.low_offset)
        ORDER BY l.first_offset DESC LIMIT 1
    ) h
    WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
      AND greatest(p.cursor, t.low_offset) < t.next_offset AND h.created_at <= p_before
    ORDER BY h.created_at, t.id, g.id LIMIT p_limit OFFSET p_offset
$$;
