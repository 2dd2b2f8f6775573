-- queue_list_v1: every durable queue of an environment with what a list of queues shows.
-- Returns: per queue whether it is paused, its consumer groups, the waiting messages of its slowest group, the messages
-- under live leases, when its oldest waiting message was pushed, and its dead letters; `blocked_partition` and
-- `blocked_group`, the partition whose next message failed most often, and `blocked_attempts`, how often.
-- Locks: none.
-- Cost: follows the queues, their groups and live leases, never messages or partitions: of each group it reads the 32
-- partitions that are ready first, and of a queue without groups the first 32 partitions.
-- No nested loops: a plan that was made while there were few queues would compare every queue with every other one.
-- Volatile, so that its snapshot is not older than the last rewrite_table_v1 of a table it reads.
CREATE OR REPLACE FUNCTION queue_list_v1(
    p_organization text, p_project text, p_environment text, p_now timestamptz DEFAULT NULL
) RETURNS TABLE (queue text, paused boolean, groups bigint, depth bigint, running bigint, oldest_at timestamptz,
                 dead bigint, blocked_partition text, blocked_group text, blocked_attempts int)
LANGUAGE sql VOLATILE SET enable_nestloop = off AS $$
    WITH selected AS MATERIALIZED (
        SELECT q.id, q.name, q.paused FROM queues q
        WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
    ), gauges AS MATERIALIZED (
        SELECT m.queue_id, m.group_name, m.depth, m.running, m.oldest_at
        FROM queue_gauges_v1(array(SELECT i.id FROM selected i), p_now) m
    ), group_counts AS (
        SELECT m.queue_id, count(*) AS groups FROM gauges m WHERE m.group_name <> '' GROUP BY m.queue_id
    ), dead AS (
        SELECT c.queue_id, sum(c.messages)::bigint AS messages
        FROM (SELECT queue_id, messages FROM dead_counts UNION ALL SELECT queue_id, messages FROM dead_tallies) c
        GROUP BY c.queue_id
    ), blocked AS (
        SELECT DISTINCT ON (g.queue_id) g.queue_id, t.name AS partition, g.name AS group_name,
               (f.attempts ->> f.cursor::text)::int AS attempts
        FROM gauges m
        JOIN groups g ON g.queue_id = m.queue_id AND g.name = m.group_name
        CROSS JOIN LATERAL (
            SELECT p.partition_id, p.cursor, p.attempts FROM positions p
            WHERE p.group_id = g.id AND p.ready_at IS NOT NULL ORDER BY p.ready_at LIMIT 32) f
        JOIN partitions t ON t.id = f.partition_id
        WHERE m.group_name <> '' AND m.depth + m.running > 0 AND f.attempts ? f.cursor::text
        ORDER BY g.queue_id, attempts DESC, t.id
    )
    SELECT s.name, s.paused, coalesce(n.groups, 0), m.depth, m.running, coalesce(m.oldest_at, u.oldest_at),
           coalesce(d.messages, 0), b.partition, b.group_name, b.attempts
    FROM selected s
    JOIN gauges m ON m.queue_id = s.id AND m.group_name = ''
    LEFT JOIN group_counts n ON n.queue_id = s.id
    LEFT JOIN dead d ON d.queue_id = s.id
    LEFT JOIN blocked b ON b.queue_id = s.id
    LEFT JOIN LATERAL (
        SELECT min(message_created_at_v1(t.id, t.low_offset)) AS oldest_at
        FROM (SELECT p.id, p.low_offset, p.next_offset FROM partitions p
              WHERE p.queue_id = s.id ORDER BY p.name LIMIT 32) t
        WHERE n.groups IS NULL AND m.depth > 0 AND t.next_offset > t.low_offset) u ON true
$$;
