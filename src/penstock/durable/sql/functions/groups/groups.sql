-- groups_v1: list a page of consumer groups by name and queue, with their backlog and leases.
-- Returns: `depth` counts messages that were not started, `running` those under live leases; `behind` is the number of
-- partitions with unfinished messages; `oldest_at` is when the oldest unfinished message was pushed.
-- Cost: follows the groups of the page and the partitions in which they have unfinished messages.
CREATE OR REPLACE FUNCTION groups_v1(
    p_organization text, p_project text, p_environment text, p_group text, p_queue text, p_limit int,
    p_offset int, p_now timestamptz DEFAULT NULL
) RETURNS TABLE (id bigint, name text, queue_id bigint, queue text, subscription text, created_at timestamptz,
                 depth bigint, running bigint, leases bigint, behind bigint, oldest_at timestamptz, dead bigint,
                 total bigint)
LANGUAGE sql STABLE AS $$
    WITH page AS MATERIALIZED (
        SELECT g.*, q.name AS queue, count(*) OVER () AS total
        FROM queues q JOIN groups g ON g.queue_id = q.id
        WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
          AND (p_group IS NULL OR g.name = p_group) AND (p_queue IS NULL OR q.name = p_queue)
        ORDER BY g.name, q.name LIMIT p_limit OFFSET p_offset
    )
    SELECT g.id, g.name, g.queue_id, g.queue, g.subscription, g.created_at, m.depth, m.running,
           (SELECT count(DISTINCT p.lease_id) FROM positions p
            WHERE p.group_id = g.id AND p.ready_at > coalesce(p_now, clock_timestamp())
              AND p.lease_expires_at > coalesce(p_now, clock_timestamp()) AND p.lease_id IS NOT NULL),
           l.behind, l.oldest_at,
           dead_letter_count_v1(g.queue_id, g.id),
           g.total
    FROM page g
    JOIN queue_gauges_v1(array(SELECT DISTINCT p.queue_id FROM page p), p_now) m
      ON m.queue_id = g.queue_id AND m.group_name = g.name
    CROSS JOIN LATERAL group_lag_v1(g.id) l
    ORDER BY g.name, g.queue
$$;
