-- operation_v1: read one operation.
-- Returns: no row if it does not exist. `ahead` is the number of operations before it in its lane, counted up to
-- 10,000; NULL unless it is pending.
CREATE OR REPLACE FUNCTION operation_v1(p_organization text, p_project text, p_environment text, p_id uuid)
RETURNS TABLE (id uuid, sequence bigint, kind text, status text, reason text, priority smallint, queue text,
               partition text, partition_id bigint, items int, accepted_at timestamptz, finished_at timestamptz,
               attempts int, error text, transaction_ids text[], message_ids uuid[], trace_ids uuid[], statuses text[],
               result jsonb, ahead bigint)
LANGUAGE sql STABLE AS $$
    SELECT o.id, o.sequence, o.kind, o.status, o.reason, o.priority, q.name, t.name, o.partition_id, o.items,
           o.accepted_at, o.finished_at, o.attempts, o.error, o.transaction_ids, o.message_ids, o.trace_ids, o.statuses,
           o.result, CASE WHEN o.status = 'pending' THEN (
               SELECT count(*) FROM (
                   SELECT 1 FROM operations w WHERE w.partition_id = o.partition_id AND w.kind = o.kind
                   AND w.status = 'pending' AND w.sequence < o.sequence LIMIT 10000) b) END
    FROM operations o
    JOIN queues q ON q.id = o.queue_id
    JOIN partitions t ON t.id = o.partition_id
    WHERE o.id = p_id AND q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
$$;
