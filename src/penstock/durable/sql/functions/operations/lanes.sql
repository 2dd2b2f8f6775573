-- lanes_v1: list the lanes of an environment that have operations, the most urgent first; p_queue is a filter.
-- Returns: per lane its operations, the first of them with its error, and `blocked` if that one failed and the lane
-- waits for an operator. `retry_at` is when the lane may be drained, the past unless an attempt failed; NULL if it may
-- be at any time, or is blocked. `total` counts all lanes.
-- Locks: none.
-- Cost: follows the lanes with waiting operations.
CREATE OR REPLACE FUNCTION lanes_v1(
    p_organization text, p_project text, p_environment text, p_queue text, p_limit int
) RETURNS TABLE (queue text, partition text, partition_id bigint, kind text, operations int, blocked boolean,
                 retry_at timestamptz, operation_id uuid, accepted_at timestamptz, attempts int, error text, total bigint)
LANGUAGE sql STABLE AS $$
    SELECT n.queue, n.partition, n.partition_id, n.kind, n.operations, n.not_before = 'infinity',
           CASE WHEN isfinite(n.not_before) THEN n.not_before END, o.id, o.accepted_at, o.attempts, o.error, n.total
    FROM (
        SELECT q.name AS queue, p.name AS partition, l.partition_id, l.kind, l.not_before, l.due_at,
               CASE WHEN l.kind = 'push' THEN p.deferred_pushes ELSE p.deferred_acks END AS operations,
               count(*) OVER () AS total
        FROM lanes l
        JOIN partitions p ON p.id = l.partition_id
        JOIN queues q ON q.id = p.queue_id
        WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
          AND (p_queue IS NULL OR q.name = p_queue)
        ORDER BY l.due_at, l.partition_id, l.kind LIMIT p_limit
    ) n
    LEFT JOIN LATERAL (
        (SELECT b.id, b.accepted_at, b.attempts, b.error, 0 AS place FROM operations b
         WHERE n.not_before = 'infinity' AND b.status = 'failed' AND b.blocks_lane
           AND b.partition_id = n.partition_id AND b.kind = n.kind)
        UNION ALL
        (SELECT w.id, w.accepted_at, w.attempts, w.error, 1 FROM operations w
         WHERE w.status = 'pending' AND w.partition_id = n.partition_id AND w.kind = n.kind
         ORDER BY w.sequence LIMIT 1)
        ORDER BY place LIMIT 1
    ) o ON true
    ORDER BY n.due_at, n.partition_id, n.kind
$$;
