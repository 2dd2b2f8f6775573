-- dead_groups_v1: an environment's dead letters grouped by what they died of, the most frequent first; of a queue or
-- group if named. `hours` are the counts of the last p_hours hours, the running one last: letters that are dead now,
-- by the hour in which they died. Every row tells how many groups there are.
-- Cost follows the groups of errors and the hours in which there were any; of letters a few are looked up.
CREATE OR REPLACE FUNCTION dead_groups_v1(
    p_organization text, p_project text, p_environment text, p_queue text, p_group text, p_hours int, p_limit int,
    p_offset int, p_now timestamptz DEFAULT NULL
) RETURNS TABLE (error_key uuid, pattern text, messages bigint, queues text[], groups text[], first_at timestamptz,
                 last_at timestamptz, hours bigint[], example text, total bigint)
LANGUAGE sql STABLE AS $$
    WITH moment AS (
        SELECT date_bin('1 hour', coalesce(p_now, clock_timestamp()), '2000-01-01T00:00:00Z') AS hour
    ), counted AS MATERIALIZED (
        SELECT c.queue_id, c.group_id, c.error_key, c.hour, sum(c.messages) AS messages
        FROM (SELECT queue_id, group_id, error_key, hour, messages FROM dead_error_counts
              UNION ALL SELECT queue_id, group_id, error_key, hour, messages FROM dead_tallies) c
        JOIN queues q ON q.id = c.queue_id
        LEFT JOIN groups g ON g.id = c.group_id
        WHERE q.environment_id = environment_v1(p_organization, p_project, p_environment)
          AND (p_queue IS NULL OR q.name = p_queue) AND (p_group IS NULL OR g.name = p_group)
        GROUP BY 1, 2, 3, 4
    ), page AS MATERIALIZED (
        SELECT c.error_key, sum(c.messages)::bigint AS messages, count(*) OVER () AS total
        FROM counted c GROUP BY c.error_key HAVING sum(c.messages) <> 0
        ORDER BY sum(c.messages) DESC, c.error_key LIMIT p_limit OFFSET p_offset
    )
    SELECT p.error_key,
           CASE WHEN p.error_key <> '00000000-0000-0000-0000-000000000000'
                THEN coalesce(e.pattern, error_pattern_v1(s.example)) END,
           p.messages, s.queues, s.groups, s.first_at, s.last_at,
           array(SELECT coalesce((SELECT sum(c.messages) FROM counted c
                                  WHERE c.error_key = p.error_key
                                    AND c.hour = m.hour - (p_hours - h) * interval '1 hour'), 0)::bigint
                 FROM generate_series(1, p_hours) h ORDER BY h),
           s.example, p.total
    FROM page p
    CROSS JOIN moment m
    LEFT JOIN dead_errors e ON e.key = p.error_key
    CROSS JOIN LATERAL (
        SELECT array_agg(DISTINCT q.name) AS queues, array_agg(DISTINCT g.name) AS groups,
               min(o.failed_at) AS first_at, max(n.failed_at) AS last_at,
               (array_agg(n.error ORDER BY n.failed_at DESC))[1] AS example
        FROM (SELECT DISTINCT c.queue_id, c.group_id FROM counted c WHERE c.error_key = p.error_key) k
        JOIN queues q ON q.id = k.queue_id
        LEFT JOIN groups g ON g.id = k.group_id
        CROSS JOIN LATERAL (
            SELECT d.failed_at FROM dead_letters d
            WHERE d.queue_id = k.queue_id AND d.group_id = k.group_id AND d.error_key = p.error_key
            ORDER BY d.failed_at LIMIT 1) o
        CROSS JOIN LATERAL (
            SELECT d.failed_at, d.error FROM dead_letters d
            WHERE d.queue_id = k.queue_id AND d.group_id = k.group_id AND d.error_key = p.error_key
            ORDER BY d.failed_at DESC LIMIT 1) n
    ) s
    ORDER BY p.messages DESC, p.error_key
$$;
