-- lock_next_lanes_v1: lock the most urgent lanes that may be drained now.
-- Returns: their partition ids, in order.
-- Locks: lanes SKIP LOCKED.
CREATE OR REPLACE FUNCTION lock_next_lanes_v1(p_kind text, p_lanes int, p_now timestamptz) RETURNS bigint[]
LANGUAGE sql AS $$
    SELECT coalesce(array_agg(n.partition_id ORDER BY n.partition_id), '{}') FROM (
        SELECT l.partition_id FROM lanes l
        WHERE l.kind = p_kind AND l.not_before <= coalesce(p_now, clock_timestamp())
        ORDER BY l.due_at LIMIT p_lanes FOR UPDATE SKIP LOCKED) n
$$;
