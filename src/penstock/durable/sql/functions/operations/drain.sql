-- drain_v1: execute waiting operations of the most urgent lanes, all or nothing.
-- Takes up to p_lanes lanes that no other drain has locked, and up to p_operations of each in their order.
-- Returns: rows for metrics and wakeups; see drain_pushes_v1 and drain_acks_v1.
-- Raises: the error of an operation that cannot be executed; drain_one_by_one_v1 then finds that operation.
-- Locks: lanes SKIP LOCKED; then the locks of the operations.
CREATE OR REPLACE FUNCTION drain_v1(p_kind text, p_lanes int, p_operations int, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (operations int, organization text, project text, environment text, queue_id bigint, queue text,
               partition_id bigint, group_name text, outcome text, messages int, run_ms bigint[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_lanes bigint[] := lock_next_lanes_v1(p_kind, p_lanes, p_now);
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
