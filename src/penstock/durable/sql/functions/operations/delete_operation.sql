-- delete_operation_v1: delete an operation; one that waits or failed is then never executed.
-- Returns: the status it had; `unknown` if it does not exist.
-- Locks: as retry_operation_v1.
CREATE OR REPLACE FUNCTION delete_operation_v1(p_id uuid, p_now timestamptz DEFAULT NULL) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_operation operations := lock_operation_v1(p_id);
BEGIN
    IF v_operation.id IS NULL THEN
        RETURN 'unknown';
    END IF;
    DELETE FROM operations WHERE id = p_id;
    IF v_operation.blocks_lane THEN
        UPDATE lanes SET not_before = coalesce(p_now, clock_timestamp())
        WHERE partition_id = v_operation.partition_id AND kind = v_operation.kind;
    END IF;
    IF v_operation.status = 'pending' OR v_operation.blocks_lane THEN
        PERFORM remove_from_lanes_v1(v_operation.kind, ARRAY[v_operation.partition_id], ARRAY[1]);
    END IF;
    RETURN v_operation.status;
END $$;
