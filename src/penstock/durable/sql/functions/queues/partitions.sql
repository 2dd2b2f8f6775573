-- partitions_v1: list a page of partitions of one queue or of a whole environment, by queue and name.
-- Returns: `pending` counts messages that the slowest group has not finished and does not hold under a live lease;
-- `running` counts messages under live leases.
-- Cost: follows the environment's partitions (for the total) and the page, never messages.
CREATE OR REPLACE FUNCTION partitions_v1(
    p_organization text, p_project text, p_environment text, p_queue text, p_search text, p_limit int,
    p_offset int, p_now timestamptz DEFAULT NULL
) RETURNS TABLE (id bigint, name text, queue_id bigint, queue text, created_at timestamptz, pushed_at timestamptz,
                 low_offset bigint, next_offset bigint, pending bigint, running bigint, total bigint)
LANGUAGE sql STABLE AS $$
    WITH page AS MATERIALIZED (
        SELECT t.*, q.name AS queue
        FROM queues q JOIN partitions t ON t.queue_id = q.id
        WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
          AND (p_queue IS NULL OR q.name = p_queue)
          AND (p_search IS NULL OR strpos(lower(t.name), lower(p_search)) > 0)
        ORDER BY q.name, t.name LIMIT p_limit OFFSET p_offset
    ), counted AS MATERIALIZED (
        SELECT count(*) AS total FROM partitions t
        WHERE t.queue_id IN (SELECT q.id FROM queues q
                             WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
                               AND (p_queue IS NULL OR q.name = p_queue))
          AND (p_search IS NULL OR strpos(lower(t.name), lower(p_search)) > 0)
    )
    SELECT t.id, t.name, t.queue_id, t.queue, t.created_at, t.pushed_at, t.low_offset, t.next_offset,
           coalesce(u.pending, t.next_offset - t.low_offset), coalesce(u.running, 0)::bigint, c.total
    FROM page t
    CROSS JOIN counted c
    CROSS JOIN LATERAL (
        SELECT max(t.next_offset - greatest(p.cursor, t.low_offset) - l.leased) AS pending, sum(l.leased) AS running
        FROM positions p
        CROSS JOIN LATERAL (
            SELECT CASE WHEN p.lease_id IS NOT NULL AND p.lease_expires_at > coalesce(p_now, clock_timestamp())
                        THEN p.lease_to - greatest(p.lease_from, p.cursor) ELSE 0 END AS leased
        ) l
        WHERE p.partition_id = t.id
    ) u
    ORDER BY t.queue, t.name
$$;
