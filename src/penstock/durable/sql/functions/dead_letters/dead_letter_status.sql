-- dead_letter_status_v1: list a page of an environment's queues and groups that have had dead letters, by name.
-- p_queue and p_group are filters. A group that was deleted has no name.
-- Returns: the present number of dead letters and, with p_ages, since when the oldest is dead. `total`, in every row,
-- is the number of rows.
-- Cost: follows the queues and groups with dead letters and the changes not folded yet, never dead letters.
CREATE OR REPLACE FUNCTION dead_letter_status_v1(
    p_organization text, p_project text, p_environment text, p_queue text, p_group text, p_limit int, p_offset int,
    p_ages boolean
) RETURNS TABLE (queue_id bigint, queue text, group_id bigint, group_name text, messages bigint,
                 oldest_at timestamptz, total bigint)
LANGUAGE sql STABLE AS $$
    WITH counted AS (
        SELECT c.queue_id, c.group_id, sum(c.messages)::bigint AS messages FROM (
            SELECT queue_id, group_id, messages FROM dead_counts
            UNION ALL SELECT queue_id, group_id, messages FROM dead_tallies) c
        GROUP BY c.queue_id, c.group_id
    ), page AS MATERIALIZED (
        SELECT c.*, q.name AS queue, g.name AS group_name, count(*) OVER () AS total
        FROM counted c
        JOIN queues q ON q.id = c.queue_id
        LEFT JOIN groups g ON g.id = c.group_id
        WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
          AND (p_queue IS NULL OR q.name = p_queue) AND (p_group IS NULL OR g.name = p_group)
          AND (g.id IS NOT NULL OR c.messages <> 0)
        ORDER BY q.name, g.name, c.group_id LIMIT p_limit OFFSET p_offset
    )
    SELECT p.queue_id, p.queue, p.group_id, p.group_name, p.messages,
           CASE WHEN p_ages AND p.messages <> 0 THEN (
               SELECT d.failed_at FROM dead_letters d WHERE d.queue_id = p.queue_id AND d.group_id = p.group_id
               ORDER BY d.failed_at LIMIT 1) END, p.total
    FROM page p ORDER BY p.queue, p.group_name, p.group_id
$$;
