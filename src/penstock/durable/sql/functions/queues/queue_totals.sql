-- queue_totals_v1: read totals of queues.
-- Returns: partitions, groups, messages ever pushed, messages kept, messages that the slowest group has not started,
-- messages under live leases, and dead letters.
-- Cost: follows partitions, groups and live leases, never messages.
-- Volatile, so that its snapshot is not older than the last rewrite_table_v1 of a table it reads.
CREATE OR REPLACE FUNCTION queue_totals_v1(p_queue_ids bigint[], p_now timestamptz DEFAULT NULL)
RETURNS TABLE (queue_id bigint, partitions bigint, groups bigint, pushed bigint, kept bigint, depth bigint,
               running bigint, dead bigint)
LANGUAGE sql VOLATILE AS $$
    SELECT m.queue_id, t.partitions, (SELECT count(*) FROM groups g WHERE g.queue_id = m.queue_id),
           coalesce((SELECT sum(y.messages) FROM tallies y
                     WHERE y.queue_id = m.queue_id AND y.group_id = 0), 0)::bigint,
           t.kept, m.depth, m.running,
           dead_letter_count_v1(m.queue_id)
    FROM queue_gauges_v1(p_queue_ids, p_now) m
    CROSS JOIN LATERAL (
        SELECT count(*) AS partitions, coalesce(sum(p.next_offset - p.low_offset), 0)::bigint AS kept
        FROM partitions p WHERE p.queue_id = m.queue_id
    ) t
    WHERE m.group_name = ''
$$;
