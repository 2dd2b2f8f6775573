-- drain_v1: carry out waiting operations of the most urgent lanes that no other drain holds: up to p_lanes lanes,
-- and of each up to p_operations in their order. All of it takes effect, or none.
-- Returns what to tell the metrics and whoever waits; see drain_pushes_v1 and drain_acks_v1.
-- Raises: whatever an operation that cannot be carried out raises; drain_one_by_one_v1 then finds out which.
-- Locks: lanes (none that is taken); then those of the operations.
CREATE OR REPLACE FUNCTION drain_v1(p_kind text, p_lanes int, p_operations int, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (operations int, organization text, project text, environment text, queue_id bigint, queue text,
               partition_id bigint, group_name text, outcome text, messages int, run_ms bigint[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_lanes bigint[] := next_lanes_v1(p_kind, p_lanes, p_now);
BEGIN
    IF cardinality(v_lanes) = 0 THEN
        RETURN;
    END IF;
    IF p_kind = 'push' THEN
        RETURN QUERY SELECT * FROM drain_pushes_v1(v_lanes, p_operations, p_now);
    ELSE
        RETURN QUERY SELECT * FROM drain_acks_v1(v_lanes, p_operations, p_now);
    END IF;
END $$;
