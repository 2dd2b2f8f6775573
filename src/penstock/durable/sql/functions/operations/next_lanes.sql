-- next_lanes_v1: lock and return the lanes that come next.
CREATE OR REPLACE FUNCTION next_lanes_v1(p_kind text, p_lanes int, p_now timestamptz) RETURNS bigint[]
LANGUAGE sql AS $$
    SELECT coalesce(array_agg(n.partition_id ORDER BY n.partition_id), '{}') FROM (
        SELECT l.partition_id FROM lanes l
        WHERE l.kind = p_kind AND l.not_before <= coalesce(p_now, clock_timestamp())
        ORDER BY l.due LIMIT p_lanes FOR UPDATE SKIP LOCKED) n
$$;
