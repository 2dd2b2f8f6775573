-- drain_one_by_one_v1: execute the first waiting operation of up to p_lanes lanes, each one on its own.
-- So an operation that cannot be executed fails alone. It is retried after p_backoff_ms, after twice that time when it
-- fails again, and so on up to 30 seconds; after p_attempts failures it is marked as failed. With p_hold its lane then
-- waits for an operator; otherwise the lane continues without it.
-- Returns: as drain_v1, and a row with outcome 'parked' for each operation that was marked as failed.
-- Locks: as drain_v1.
CREATE OR REPLACE FUNCTION drain_one_by_one_v1(
    p_kind text, p_lanes int, p_attempts int, p_backoff_ms bigint, p_hold boolean, p_now timestamptz DEFAULT NULL
) RETURNS TABLE (operations int, organization text, project text, environment text, queue_id bigint, queue text,
                 partition_id bigint, group_name text, outcome text, messages int, run_ms bigint[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_lane      bigint;
    v_operation operations;
    v_error     text;
    v_now       timestamptz;
BEGIN
    FOREACH v_lane IN ARRAY lock_next_lanes_v1(p_kind, p_lanes, p_now) LOOP
        BEGIN
            IF p_kind = 'push' THEN
                RETURN QUERY SELECT * FROM drain_pushes_v1(ARRAY[v_lane], 1, p_now);
            ELSE
                RETURN QUERY SELECT * FROM drain_acks_v1(ARRAY[v_lane], 1, p_now);
            END IF;
            CONTINUE;
        EXCEPTION WHEN query_canceled OR admin_shutdown OR crash_shutdown OR deadlock_detected
                       OR lock_not_available THEN
            RAISE;
        WHEN OTHERS THEN
            v_error := SQLERRM;
        END;
        v_now := coalesce(p_now, clock_timestamp());
        PERFORM 1 FROM partitions WHERE id = v_lane FOR NO KEY UPDATE;
        SELECT * INTO v_operation FROM next_operations_v1(p_kind, ARRAY[v_lane], 1);
        UPDATE operations o SET attempts = o.attempts + 1, error = v_error,
               status = CASE WHEN o.attempts + 1 >= p_attempts THEN 'failed' ELSE 'pending' END,
               blocks_lane = p_hold AND o.attempts + 1 >= p_attempts
        WHERE o.id = v_operation.id RETURNING * INTO v_operation;
        IF v_operation.status = 'pending' THEN
            UPDATE lanes l SET not_before = v_now
                   + least(p_backoff_ms * 2 ^ (v_operation.attempts - 1), 30000) * interval '1 millisecond'
            WHERE l.partition_id = v_lane AND l.kind = p_kind;
        ELSIF p_hold THEN
            UPDATE lanes l SET not_before = 'infinity' WHERE l.partition_id = v_lane AND l.kind = p_kind;
        ELSE
            PERFORM remove_from_lanes_v1(p_kind, ARRAY[v_lane], ARRAY[1]);
        END IF;
        RETURN QUERY
        SELECT 0, e.organization, e.project, e.name, q.id, q.name, v_lane, '', 'parked', 0, NULL::bigint[]
        FROM queues q JOIN environments e ON e.id = q.environment_id WHERE q.id = v_operation.queue_id
          AND v_operation.status = 'failed';
    END LOOP;
END $$;
