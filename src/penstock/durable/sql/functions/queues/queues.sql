-- queues_v1: list a page of an environment's queues by name, with their totals.
-- Returns: `depth` is that of the queue's slowest group.
-- Cost: follows the page and, for the total, the names of the environment's queues; never messages.
CREATE OR REPLACE FUNCTION queues_v1(
    p_organization text, p_project text, p_environment text, p_search text, p_limit int, p_offset int
) RETURNS TABLE (id bigint, name text, namespace text, task text, created_at timestamptz,
                 partitions bigint, groups bigint, depth bigint, running bigint, paused boolean,
                 total bigint)
LANGUAGE sql STABLE AS $$
    WITH matching AS MATERIALIZED (
        SELECT q.id, q.name FROM queues q
        WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
          AND (p_search IS NULL OR strpos(lower(q.name), lower(p_search)) > 0)
    ), page AS MATERIALIZED (
        SELECT q.*, (SELECT count(*) FROM matching) AS total
        FROM (SELECT m.id FROM matching m ORDER BY m.name LIMIT p_limit OFFSET p_offset) m
        JOIN queues q ON q.id = m.id
    )
    SELECT q.id, q.name, q.namespace, q.task, q.created_at,
           (SELECT count(*) FROM partitions t WHERE t.queue_id = q.id),
           (SELECT count(*) FROM groups g WHERE g.queue_id = q.id),
           m.depth, m.running, q.paused, q.total
    FROM page q
    LEFT JOIN queue_gauges_v1(array(SELECT p.id FROM page p)) m ON m.queue_id = q.id AND m.group_name = ''
    ORDER BY q.name
$$;
