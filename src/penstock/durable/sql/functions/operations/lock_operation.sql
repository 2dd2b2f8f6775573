-- lock_operation_v1: lock an operation in the order a drain does.
-- Returns: the operation; all columns NULL if it does not exist.
-- Locks: its lane, then the partition's row, then the operation.
CREATE OR REPLACE FUNCTION lock_operation_v1(p_id uuid) RETURNS operations
LANGUAGE plpgsql AS $$
DECLARE
    v_operation operations;
BEGIN
    PERFORM 1 FROM lanes l JOIN operations o ON l.partition_id = o.partition_id AND l.kind = o.kind
    WHERE o.id = p_id FOR UPDATE OF l;
    PERFORM 1 FROM partitions p JOIN operations o ON p.id = o.partition_id
    WHERE o.id = p_id FOR NO KEY UPDATE OF p;
    SELECT * INTO v_operation FROM operations WHERE id = p_id FOR UPDATE;
    RETURN v_operation;
END $$;
