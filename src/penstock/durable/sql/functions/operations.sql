-- operations_v1: a page of an environment's operations, the oldest first, after an id; of a queue or status if named.
-- Those that wait or failed are found by indexes of their own: what is done is kept for a while, and may be a lot.
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
    WHERE q.environment_id = environment_v1(p_organization, p_project, p_environment)
      AND (p_queue IS NULL OR q.name = p_queue)
    ORDER BY o.id LIMIT p_limit
$$;

-- operation_v1: one operation, and how many of its lane come before it.
CREATE OR REPLACE FUNCTION operation_v1(p_organization text, p_project text, p_environment text, p_id uuid)
RETURNS TABLE (id uuid, place bigint, kind text, status text, reason text, priority smallint, queue text,
               partition text, partition_id bigint, items int, accepted_at timestamptz, finished_at timestamptz,
               attempts int, error text, transaction_ids text[], message_ids uuid[], trace_ids uuid[], statuses text[],
               result jsonb, ahead bigint)
LANGUAGE sql STABLE AS $$
    SELECT o.id, o.place, o.kind, o.status, o.reason, o.priority, q.name, t.name, o.partition_id, o.items,
           o.accepted_at, o.finished_at, o.attempts, o.error, o.transaction_ids, o.message_ids, o.trace_ids, o.statuses,
           o.result, CASE WHEN o.status = 'pending' THEN (
               SELECT count(*) FROM (
                   SELECT 1 FROM operations w WHERE w.partition_id = o.partition_id AND w.kind = o.kind
                   AND w.status = 'pending' AND w.place < o.place LIMIT 10000) b) END
    FROM operations o
    JOIN queues q ON q.id = o.queue_id
    JOIN partitions t ON t.id = o.partition_id
    WHERE o.id = p_id AND q.environment_id = environment_v1(p_organization, p_project, p_environment)
$$;
