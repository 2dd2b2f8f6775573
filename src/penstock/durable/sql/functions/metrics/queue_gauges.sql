-- queue_gauges_v1: read depth, running messages (under live leases) and the oldest waiting message per queue and group.
-- Returns: a row with an empty group is the queue as a whole: its slowest group, or all messages it holds if it has no
-- group.
-- Cost: follows the number of groups and live leases, never messages or partitions: it looks for the oldest message in
-- the 32 partitions that have been ready longest.
-- Volatile, so that its snapshot is not older than the last rewrite_table_v1 of a table it reads.
CREATE OR REPLACE FUNCTION queue_gauges_v1(p_queue_ids bigint[], p_now timestamptz DEFAULT NULL)
RETURNS TABLE (queue_id bigint, group_name text, depth bigint, running bigint, oldest_at timestamptz)
LANGUAGE sql VOLATILE AS $$
    WITH clock AS (SELECT coalesce(p_now, clock_timestamp()) AS now),
    totals AS (
        SELECT t.queue_id, t.group_id, sum(t.messages)::bigint AS messages
        FROM tallies t WHERE t.queue_id = ANY (p_queue_ids) GROUP BY t.queue_id, t.group_id
    ), per_group AS (
        SELECT g.queue_id, g.name,
               coalesce(pushed.messages, 0) - coalesce(finished.messages, 0) AS depth,
               leased.running, least(ready.oldest_at, leased.oldest_at) AS oldest_at
        FROM groups g
        LEFT JOIN totals pushed ON pushed.queue_id = g.queue_id AND pushed.group_id = 0
        LEFT JOIN totals finished ON finished.queue_id = g.queue_id AND finished.group_id = g.id
        CROSS JOIN clock
        LEFT JOIN LATERAL (
            SELECT min(message_created_at_v1(p.partition_id, p.cursor)) AS oldest_at
            FROM (SELECT p.partition_id, p.cursor FROM positions p
                  WHERE p.group_id = g.id AND p.ready_at <= clock.now ORDER BY p.ready_at LIMIT 32) p
        ) ready ON true
        LEFT JOIN LATERAL (
            SELECT coalesce(sum(p.lease_to - greatest(p.lease_from, p.cursor)), 0)::bigint AS running,
                   min(message_created_at_v1(p.partition_id, p.lease_to)) AS oldest_at
            FROM positions p
            WHERE p.group_id = g.id AND p.ready_at > clock.now AND p.lease_id IS NOT NULL
              AND p.lease_expires_at > clock.now
        ) leased ON true
        WHERE g.queue_id = ANY (p_queue_ids)
    )
    SELECT queue_id, name, greatest(depth - running, 0), running, CASE WHEN depth > 0 THEN oldest_at END
    FROM per_group
    UNION ALL
    SELECT w.queue_id, '', coalesce(max(greatest(g.depth - g.running, 0)) FILTER (WHERE g.queue_id IS NOT NULL),
                    queue_size_v1(w.queue_id)),
           coalesce(sum(g.running), 0)::bigint, min(CASE WHEN g.depth > 0 THEN g.oldest_at END)
    FROM unnest(p_queue_ids) AS w (queue_id)
    LEFT JOIN per_group g ON g.queue_id = w.queue_id
    GROUP BY w.queue_id
$$;
