-- dead_letter_error_groups_v1: list a page of an environment's error groups, the most frequent first.
-- An error group has the dead letters whose errors have the same pattern. p_queue, p_group, p_states and p_error_key are
-- filters. The state of a group is the most urgent one of its queues; its owner and note are those of the latest change.
-- With p_error_key a recorded group is listed even if it has no dead letters.
-- Returns: `hours` has the counts of the last p_hours hours, the current one last: present dead letters by the hour in
-- which they died. `total`, in every row, is the number of error groups.
-- Cost: follows the error groups, their queues and groups, and p_hours; it reads only a few dead letters.
CREATE OR REPLACE FUNCTION dead_letter_error_groups_v1(
    p_organization text, p_project text, p_environment text, p_queue text, p_group text, p_states text[],
    p_error_key uuid, p_hours int, p_limit int, p_offset int, p_now timestamptz DEFAULT NULL
) RETURNS TABLE (error_key uuid, pattern text, messages bigint, queues text[], groups text[], first_at timestamptz,
                 last_at timestamptz, hours bigint[], example text, total bigint, state text, record error_groups)
LANGUAGE sql STABLE AS $$
    WITH clock AS (
        SELECT date_bin('1 hour', coalesce(p_now, clock_timestamp()), '2000-01-01T00:00:00Z') AS hour
    ), queue_groups AS MATERIALIZED (
        SELECT DISTINCT c.queue_id, c.group_id, q.name AS queue, g.name AS group_name
        FROM (SELECT queue_id, group_id FROM dead_counts UNION SELECT queue_id, group_id FROM dead_tallies) c
        JOIN queues q ON q.id = c.queue_id
        LEFT JOIN groups g ON g.id = c.group_id
        WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
          AND (p_queue IS NULL OR q.name = p_queue) AND (p_group IS NULL OR g.name = p_group)
    ), error_counts AS MATERIALIZED (
        SELECT w.queue_id, w.group_id, w.queue, w.group_name, c.error_key, sum(c.messages) AS messages
        FROM queue_groups w
        JOIN (SELECT queue_id, group_id, error_key, messages FROM dead_error_counts
              UNION ALL SELECT queue_id, group_id, error_key, messages FROM dead_tallies) c
          ON c.queue_id = w.queue_id AND c.group_id = w.group_id
        WHERE p_error_key IS NULL OR c.error_key = p_error_key
        GROUP BY 1, 2, 3, 4, 5 HAVING sum(c.messages) <> 0
    ), records AS MATERIALIZED (
        SELECT (r.record).queue, (r.record).error_key, r.record, r.current_state
        FROM error_group_records_v1(environment_id_v1(p_organization, p_project, p_environment), p_queue, p_error_key,
                                    NULL, NULL, coalesce(p_now, clock_timestamp())) r
    ), page AS MATERIALIZED (
        SELECT * FROM (
            SELECT k.*, count(*) OVER () AS total FROM (
                SELECT c.error_key, sum(c.messages)::bigint AS messages, array_agg(DISTINCT c.queue) AS queues,
                       array_agg(DISTINCT c.group_name) FILTER (WHERE c.group_id IS NOT NULL) AS groups,
                       most_urgent_state_v1(array_agg(coalesce(r.current_state, 'new'))) AS state,
                       (array_agg(r.record ORDER BY (r.record).changed_at DESC NULLS LAST))[1] AS record
                FROM (SELECT queue, group_id, group_name, error_key, messages FROM error_counts
                      UNION ALL
                      SELECT queue, NULL, NULL, error_key, 0 FROM records WHERE p_error_key IS NOT NULL) c
                LEFT JOIN records r ON r.queue = c.queue AND r.error_key = c.error_key
                GROUP BY c.error_key) k
            WHERE p_states IS NULL OR k.state = ANY (p_states)) k
        ORDER BY k.messages DESC, k.error_key LIMIT p_limit OFFSET p_offset
    ), trend AS MATERIALIZED (
        SELECT h.error_key, h.hour, sum(h.messages)::bigint AS messages
        FROM clock m CROSS JOIN queue_groups w
        CROSS JOIN LATERAL (
            SELECT k.error_key, k.hour, k.messages FROM dead_hours k
            WHERE k.queue_id = w.queue_id AND k.group_id = w.group_id
              AND k.hour > m.hour - p_hours * interval '1 hour' AND k.hour <= m.hour
            UNION ALL
            SELECT y.error_key, y.hour, y.messages FROM dead_tallies y
            WHERE y.queue_id = w.queue_id AND y.group_id = w.group_id
              AND y.hour > m.hour - p_hours * interval '1 hour' AND y.hour <= m.hour) h
        GROUP BY h.error_key, h.hour
    ), hourly AS MATERIALIZED (
        SELECT p.error_key, array_agg(coalesce(t.messages, 0) ORDER BY h.n) AS hours
        FROM page p CROSS JOIN clock m CROSS JOIN generate_series(1, p_hours) AS h (n)
        LEFT JOIN trend t ON t.error_key = p.error_key AND t.hour = m.hour - (p_hours - h.n) * interval '1 hour'
        GROUP BY p.error_key
    ), examples AS MATERIALIZED (
        SELECT c.error_key, min(oldest.failed_at) AS first_at, max(n.failed_at) AS last_at,
               (array_agg(n.error ORDER BY n.failed_at DESC))[1] AS example
        FROM page p JOIN error_counts c ON c.error_key = p.error_key
        CROSS JOIN LATERAL (
            SELECT d.failed_at FROM dead_letters d
            WHERE d.queue_id = c.queue_id AND d.group_id = c.group_id AND d.error_key = c.error_key
            ORDER BY d.failed_at LIMIT 1) oldest
        CROSS JOIN LATERAL (
            SELECT d.failed_at, d.error FROM dead_letters d
            WHERE d.queue_id = c.queue_id AND d.group_id = c.group_id AND d.error_key = c.error_key
            ORDER BY d.failed_at DESC LIMIT 1) n
        GROUP BY c.error_key
    )
    SELECT p.error_key,
           CASE WHEN p.error_key <> '00000000-0000-0000-0000-000000000000'
                THEN coalesce(e.pattern, (p.record).pattern, error_pattern_v1(s.example)) END,
           p.messages, p.queues, p.groups, s.first_at, s.last_at, w.hours, coalesce(s.example, (p.record).example),
           p.total, p.state, p.record
    FROM page p
    JOIN hourly w ON w.error_key = p.error_key
    LEFT JOIN examples s ON s.error_key = p.error_key
    LEFT JOIN dead_errors e ON e.key = p.error_key
    ORDER BY p.messages DESC, p.error_key
$$;
