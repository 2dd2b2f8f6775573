-- queue_gauges_v1: read depth, running messages (under live leases) and the oldest waiting message per queue and group.
-- Returns: a row with an empty group is the queue as a whole: its slowest group, or all messages it holds if it has no
-- group.
-- Cost: follows the number of groups and live leases, never messages or partitions: it looks for the oldest message in
-- the 32 partitions that have been ready longest, and in none for a group that has finished everything. Every group is
-- looked up by index, so the cost stays proportional to the queues whatever the planner knows about the tables.
-- Volatile, so that its snapshot is not older than the last rewrite_table_v1 of a table it reads.
CREATE OR REPLACE FUNCTION queue_gauges_v1(p_queue_ids bigint[], p_now timestamptz DEFAULT NULL)
RETURNS TABLE (queue_id bigint, group_name text, depth bigint, running bigint, oldest_at timestamptz)
LANGUAGE sql VOLATILE AS $$
    WITH clock AS (SELECT coalesce(p_now, clock_timestamp()) AS now),
    wanted AS MATERIALIZED (SELECT DISTINCT i.id FROM unnest(p_queue_ids) AS i (id)),
    per_group AS MATERIALIZED (
        SELECT g.queue_id, g.name, greatest(unfinished.messages - leased.running, 0) AS depth, leased.running,
               CASE WHEN unfinished.messages > 0 THEN least(ready.oldest_at, leased.oldest_at) END AS oldest_at
        FROM wanted w
        JOIN groups g ON g.queue_id = w.id
        CROSS JOIN clock
        CROSS JOIN LATERAL (
            SELECT (coalesce(sum(t.messages) FILTER (WHERE t.group_id = 0), 0)
                    - coalesce(sum(t.messages) FILTER (WHERE t.group_id = g.id), 0))::bigint AS messages
            FROM tallies t WHERE t.queue_id = g.queue_id AND t.group_id IN (0, g.id)
        ) unfinished
        CROSS JOIN LATERAL (
            SELECT min(CASE WHEN l.last_offset >= p.cursor THEN l.created_at END) AS oldest_at
            FROM (SELECT p.partition_id, p.cursor FROM positions p
                  WHERE p.group_id = g.id AND p.ready_at <= clock.now AND unfinished.messages > 0
                  ORDER BY p.ready_at LIMIT 32) p
            CROSS JOIN LATERAL (
                SELECT l.last_offset, l.created_at FROM log l
                WHERE l.partition_id = p.partition_id AND l.first_offset <= p.cursor
                ORDER BY l.first_offset DESC LIMIT 1
            ) l
        ) ready
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(p.lease_to - greatest(p.lease_from, p.cursor)), 0)::bigint AS running,
                   min(message_created_at_v1(p.partition_id, p.lease_to)) AS oldest_at
            FROM positions p
            WHERE p.group_id = g.id AND p.ready_at > clock.now AND p.lease_id IS NOT NULL
              AND p.lease_expires_at > clock.now
        ) leased
    )
    SELECT g.queue_id, g.name, g.depth, g.running, g.oldest_at FROM per_group g
    UNION ALL
    SELECT g.queue_id, '', max(g.depth), sum(g.running)::bigint, min(g.oldest_at) FROM per_group g GROUP BY g.queue_id
    UNION ALL
    SELECT w.id, '', queue_size_v1(w.id), 0, NULL
    FROM wanted w WHERE NOT EXISTS (SELECT 1 FROM groups g WHERE g.queue_id = w.id)
$$;
