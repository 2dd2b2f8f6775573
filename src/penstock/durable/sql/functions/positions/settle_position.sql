-- settle_position_v1: note what is finished and what was given back, and move the cursor over the finished prefix.
-- The lease ends when each of its messages is one or the other; the position is then ready again: at
-- once, or after the queue's retry delay if something was given back. Runs under the caller's lock.
-- Returns whether the lease ended.
CREATE OR REPLACE FUNCTION settle_position_v1(
    p_partition_id bigint, p_group_id bigint, p_finished int8multirange, p_returned int8multirange,
    p_now timestamptz
) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_position positions;
    v_queue    queues;
    v_done     int8multirange;
    v_returned int8multirange;
    v_cursor   bigint;
    v_open     boolean;
BEGIN
    SELECT * INTO v_position FROM positions WHERE partition_id = p_partition_id AND group_id = p_group_id;
    v_done := v_position.done + p_finished;
    v_returned := v_position.returned + p_returned - p_finished;
    SELECT upper(r) INTO v_cursor FROM unnest(v_done) r WHERE r @> v_position.cursor;
    v_cursor := coalesce(v_cursor, v_position.cursor);
    v_open := v_cursor < v_position.lease_to
        AND NOT (v_done + v_returned @> int8range(v_cursor, v_position.lease_to));
    SELECT q.* INTO v_queue FROM queues q JOIN partitions t ON t.queue_id = q.id WHERE t.id = p_partition_id;

    UPDATE positions SET
        cursor = v_cursor,
        done = v_done * int8multirange(int8range(v_cursor, NULL)),
        returned = CASE WHEN v_open THEN v_returned ELSE '{}' END,
        attempts = CASE WHEN attempts = '{}' THEN attempts
                        ELSE prune_attempts_v1(attempts, v_done, v_cursor) END,
        lease_id = CASE WHEN v_open THEN lease_id END,
        ready_at = CASE
            WHEN v_open THEN ready_at
            WHEN NOT isempty(v_returned) THEN retry_ready_at_v1(v_queue.id, p_now)
            ELSE coalesce(message_created_at_v1(p_partition_id, v_cursor)
                          + v_queue.delay_ms * interval '1 millisecond', p_now) END
    WHERE partition_id = p_partition_id AND group_id = p_group_id;

    IF v_cursor > v_position.cursor THEN
        INSERT INTO tallies AS t (queue_id, group_id, slot, messages)
        VALUES (v_queue.id, p_group_id, tally_slot_v1(), v_cursor - v_position.cursor)
        ON CONFLICT (queue_id, group_id, slot) DO UPDATE SET messages = t.messages + excluded.messages;
    END IF;
    RETURN NOT v_open;
END $$;
