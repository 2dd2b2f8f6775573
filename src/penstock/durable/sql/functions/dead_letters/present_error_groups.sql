-- present_error_groups_v1: list the error groups of the dead letters that an environment's durable queues have.
-- Returns: a row per queue and error group: when its oldest and newest dead letter died, and the newest error.
-- Cost: follows the error groups and their consumer groups; it reads two dead letters of each.
CREATE OR REPLACE FUNCTION present_error_groups_v1(p_environment_id bigint)
RETURNS TABLE (queue text, error_key uuid, first_at timestamptz, last_at timestamptz, example text)
LANGUAGE sql STABLE AS $$
    SELECT q.name, c.error_key, min(oldest.failed_at), max(newest.failed_at),
           coalesce((array_agg(newest.error ORDER BY newest.failed_at DESC))[1], '')
    FROM queues q
    CROSS JOIN LATERAL (
        SELECT e.group_id, e.error_key FROM dead_error_counts e WHERE e.queue_id = q.id
        UNION SELECT y.group_id, y.error_key FROM dead_tallies y WHERE y.queue_id = q.id) c
    CROSS JOIN LATERAL (
        SELECT d.failed_at FROM dead_letters d
        WHERE d.queue_id = q.id AND d.group_id = c.group_id AND d.error_key = c.error_key
        ORDER BY d.failed_at LIMIT 1) oldest
    CROSS JOIN LATERAL (
        SELECT d.failed_at, d.error FROM dead_letters d
        WHERE d.queue_id = q.id AND d.group_id = c.group_id AND d.error_key = c.error_key
        ORDER BY d.failed_at DESC LIMIT 1) newest
    WHERE q.environment_id = p_environment_id
    GROUP BY q.name, c.error_key
$$;
