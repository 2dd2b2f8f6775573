-- lagging_positions_v1: list positions whose oldest unfinished message was pushed before p_before.
-- p_queue selects one queue; NULL selects all. The oldest come first, or with p_by_lag those with the most messages.
-- Cost: that of unfinished_positions_v1 for each group of the environment, or of the queue.
CREATE OR REPLACE FUNCTION lagging_positions_v1(
    p_organization text, p_project text, p_environment text, p_queue text, p_by_lag boolean, p_before timestamptz,
    p_limit int, p_offset int
) RETURNS TABLE (group_name text, queue text, partition text, partition_id bigint, unfinished bigint,
                 oldest_at timestamptz, leased_at timestamptz, total bigint)
LANGUAGE sql STABLE AS $$
    SELECT g.name, q.name, u.partition, u.partition_id, u.unfinished, u.oldest_at, u.leased_at, count(*) OVER ()
    FROM queues q
    JOIN groups g ON g.queue_id = q.id
    CROSS JOIN LATERAL unfinished_positions_v1(g.id) u
    WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
      AND (p_queue IS NULL OR q.name = p_queue) AND u.oldest_at <= p_before
    ORDER BY CASE WHEN p_by_lag THEN -u.unfinished END, u.oldest_at, u.partition_id, g.id
    LIMIT p_limit OFFSET p_offset
$$;
