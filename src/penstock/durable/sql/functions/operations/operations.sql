-- operations_v1: list a page of an environment's operations after the id p_after, the oldest first.
-- p_queue and p_status are filters. Pending and failed operations have indexes of their own: completed operations are
-- kept for a while, and there may be many.
CREATE OR REPLACE FUNCTION operations_v1(
    p_organization text, p_project text, p_environment text, p_queue text, p_status text, p_after uuid, p_limit int
) RETURNS TABLE (id uuid, kind text, status text, reason text, priority smallint, queue text, partition text,
                 partition_id bigint, items int, accepted_at timestamptz, finished_at timestamptz, attempts int,
                 error text)
LANGUAGE sql STABLE AS $$
    SELECT o.id, o.kind, o.status, o.reason, o.priority, q.name, t.name, o.partition_id, o.items,
           o.accepted_at, o.finished_at, o.attempts, o.error
    FROM (
        SELECT * FROM operations a WHERE (p_status IS NULL OR (p_status = 'completed' AND a.status = 'completed'))
                                     AND a.id > p_after
        UNION ALL
        SELECT * FROM operations a WHERE p_status = 'pending' AND a.status = 'pending' AND a.id > p_after
        UNION ALL
        SELECT * FROM operations a WHERE p_status = 'failed' AND a.status = 'failed' AND a.id > p_after
    ) o
    JOIN queues q ON q.id = o.queue_id
    JOIN partitions t ON t.id = o.partition_id
    WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
      AND (p_queue IS NULL OR q.name = p_queue)
    ORDER BY o.id LIMIT p_limit
$$;
