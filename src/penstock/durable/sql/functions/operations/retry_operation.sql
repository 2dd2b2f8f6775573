-- retry_operation_v1: put a failed operation back into its lane, before all others.
-- Returns: `retried`; without an effect `unknown` or `not_failed`.
-- Locks: its lane, then the partition's row, then the operation.
CREATE OR REPLACE FUNCTION retry_operation_v1(p_id uuid, p_now timestamptz DEFAULT NULL) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_now       timestamptz := coalesce(p_now, clock_timestamp());
    v_operation operations := lock_operation_v1(p_id);
BEGIN
    IF v_operation.id IS NULL THEN
        RETURN 'unknown';
    ELSIF v_operation.status <> 'failed' THEN
        RETURN 'not_failed';
    END IF;
    UPDATE operations SET status = 'pending', attempts = 0, blocks_lane = false WHERE id = p_id;
    IF v_operation.blocks_lane THEN
        UPDATE lanes SET not_before = v_now
        WHERE partition_id = v_operation.partition_id AND kind = v_operation.kind;
        RETURN 'retried';
    END IF;
    UPDATE partitions SET deferred_pushes = deferred_pushes + (v_operation.kind = 'push')::int,
           deferred_acks = deferred_acks + (v_operation.kind = 'ack')::int
    WHERE id = v_operation.partition_id;
    INSERT INTO lanes (partition_id, kind, due_at, not_before)
    VALUES (v_operation.partition_id, v_operation.kind, v_now, v_now) ON CONFLICT DO NOTHING;
    INSERT INTO operation_tallies AS y (kind, slot, accepted) VALUES (v_operation.kind, tally_slot_v1(), 1)
    ON CONFLICT (kind, slot) DO UPDATE SET accepted = y.accepted + 1;
    RETURN 'retried';
END $$;
