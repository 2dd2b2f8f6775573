-- lagging_positions_v1: list positions whose oldest unfinished message was pushed before p_before, the oldest first.
-- Cost: that of unfinished_positions_v1 for each group of the environment.
CREATE OR REPLACE FUNCTION lagging_positions_v1(
    p_organization text, p_project text, p_environment text, p_before timestamptz, p_limit int, p_offset int
) RETURNS TABLE (group_name text, queue text, partition text, partition_id bigint, unfinished bigint,
                 oldest_at timestamptz, leased_at timestamptz, total bigint)
LANGUAGE sql STABLE AS $$
    SELECT g.name, q.name, u.partition, u.partition_id, u.unfinished, u.oldest_at, u.leased_at, count(*) OVER ()
    FROM queues q
    JOIN groups g ON g.queue_id = q.id
    CROSS JOIN LATERAL unfinished_positions_v1(g.id) u
    WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment) AND u.oldest_at <= p_before
    ORDER BY u.oldest_at, u.partition_id, g.id LIMIT p_limit OFFSET p_offset
$$;
