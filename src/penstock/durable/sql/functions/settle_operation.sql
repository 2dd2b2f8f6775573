-- retry_operation_v1: let an operation that was parked as failed be tried again, before all others of its lane.
-- Returns retried; and without an effect: unknown, or not_failed.
-- Locks: its lane, then the partition's row, then the operation.
CREATE OR REPLACE FUNCTION retry_operation_v1(p_id uuid, p_now timestamptz DEFAULT NULL) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_now       timestamptz := coalesce(p_now, clock_timestamp());
    v_operation operations := hold_operation_v1(p_id);
BEGIN
    IF v_operation.id IS NULL THEN
        RETURN 'unknown';
    ELSIF v_operation.status <> 'failed' THEN
        RETURN 'not_failed';
    END IF;
    UPDATE operations SET status = 'pending', attempts = 0, holds = false WHERE id = p_id;
    IF v_operation.holds THEN
        UPDATE lanes SET not_before = v_now
        WHERE partition_id = v_operation.partition_id AND kind = v_operation.kind;
        RETURN 'retried';
    END IF;
    UPDATE partitions SET spilled = spilled + (v_operation.kind = 'push')::int,
           spilled_acks = spilled_acks + (v_operation.kind = 'ack')::int
    WHERE id = v_operation.partition_id;
    INSERT INTO lanes (partition_id, kind, due, not_before)
    VALUES (v_operation.partition_id, v_operation.kind, v_now, v_now) ON CONFLICT DO NOTHING;
    INSERT INTO operation_tallies AS y (kind, slot, accepted) VALUES (v_operation.kind, slot_v1(), 1)
    ON CONFLICT (kind, slot) DO UPDATE SET accepted = y.accepted + 1;
    RETURN 'retried';
END $$;

-- drop_operation_v1: forget an operation; one that waits or failed is then never carried out.
-- Returns the status it had; unknown if there is none.
-- Locks: as retry_operation_v1.
CREATE OR REPLACE FUNCTION drop_operation_v1(p_id uuid, p_now timestamptz DEFAULT NULL) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_operation operations := hold_operation_v1(p_id);
BEGIN
    IF v_operation.id IS NULL THEN
        RETURN 'unknown';
    END IF;
    DELETE FROM operations WHERE id = p_id;
    IF v_operation.holds THEN
        UPDATE lanes SET not_before = coalesce(p_now, clock_timestamp())
        WHERE partition_id = v_operation.partition_id AND kind = v_operation.kind;
    END IF;
    IF v_operation.status = 'pending' OR v_operation.holds THEN
        PERFORM leave_lanes_v1(v_operation.kind, ARRAY[v_operation.partition_id], ARRAY[1]);
    END IF;
    RETURN v_operation.status;
END $$;

-- hold_operation_v1: the operation, locked like a drain would lock it; all NULL if there is none.
CREATE OR REPLACE FUNCTION hold_operation_v1(p_id uuid) RETURNS operations
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
