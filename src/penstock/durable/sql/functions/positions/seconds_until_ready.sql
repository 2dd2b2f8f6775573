-- seconds_until_ready_v1: seconds until the next lease or delay of a group ends, in one partition or, with NULL, in
-- any; 0 if it has ended already; no row if nothing waits or the queue is paused.
-- Locks: none.
-- Cost: one index lookup.
CREATE OR REPLACE FUNCTION seconds_until_ready_v1(p_group_id bigint, p_partition_id bigint)
RETURNS TABLE (delay_s double precision)
LANGUAGE sql STABLE AS $$
    -- ready_at may be -infinity, from which older servers cannot subtract: greatest() comes first.
    SELECT extract(epoch FROM greatest(r.ready_at, now()) - now())::float8
    FROM (SELECT CASE WHEN p_partition_id IS NULL
                 THEN (SELECT min(p.ready_at) FROM positions p
                       WHERE p.group_id = p_group_id AND p.ready_at IS NOT NULL)
                 ELSE (SELECT p.ready_at FROM positions p
                       WHERE p.group_id = p_group_id AND p.partition_id = p_partition_id) END AS ready_at) r
    WHERE r.ready_at IS NOT NULL
      AND NOT (SELECT q.paused FROM groups g JOIN queues q ON q.id = g.queue_id WHERE g.id = p_group_id)
$$;
