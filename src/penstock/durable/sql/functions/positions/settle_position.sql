-- settle_position_v1: record finished and returned messages of a position and move its cursor over the finished prefix.
-- The lease ends when each of its messages is finished or returned. The position is then ready again: at once, or after
-- the queue's retry delay if a message was returned. Runs under the caller's lock on the position.
-- Returns: whether the lease ended.
CREATE OR REPLACE FUNCTION settle_position_v1(
    p_partition_id bigint, p_group_id bigint, p_finished int8multirange, p_returned int8multirange,
    p_now timestamptz
) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_position   positions;
    v_queue      queues;
    v_finished   int8multirange;
    v_returned   int8multirange;
    v_cursor     bigint;
    v_lease_open boolean;
BEGIN
    SELECT * INTO v_position FROM positions WHERE partition_id = p_partition_id AND group_id = p_group_id;
    v_finished := v_position.finished + p_finished;
    v_returned := v_position.returned + p_returned - p_finished;
    SELECT upper(r) INTO v_cursor FROM unnest(v_finished) r WHERE r @> v_position.cursor;
    v_cursor := coalesce(v_cursor, v_position.cursor);
    v_lease_open := v_cursor < v_position.lease_to
        AND NOT (v_finished + v_returned @> int8range(v_cursor, v_position.lease_to));
    SELECT q.* INTO v_queue FROM queues q JOIN partitions t ON t.queue_id = q.id WHERE t.id = p_partition_id;

    UPDATE positions SET
        cursor = v_cursor,
        finished = v_finished * int8multirange(int8range(v_cursor, NULL)),
        returned = CASE WHEN v_lease_open THEN v_returned ELSE '{}' END,
        attempts = CASE WHEN attempts = '{}' THEN attempts
                        ELSE prune_attempts_v1(attempts, v_finished, v_cursor) END,
        lease_id = CASE WHEN v_lease_open THEN lease_id END,
        ready_at = CASE
            WHEN v_lease_open THEN ready_at
            WHEN NOT isempty(v_returned) THEN retry_ready_at_v1(v_queue.id, p_now)
            ELSE coalesce(message_created_at_v1(p_partition_id, v_cursor)
                          + v_queue.delay_ms * interval '1 millisecond', p_now) END
    WHERE partition_id = p_partition_id AND group_id = p_group_id;

    IF v_cursor > v_position.cursor THEN
        INSERT INTO tallies AS t (queue_id, group_id, slot, messages)
        VALUES (v_queue.id, p_group_id, tally_slot_v1(), v_cursor - v_position.cursor)
        ON CONFLICT (queue_id, group_id, slot) DO UPDATE SET messages = t.messages + excluded.messages;
    END IF;
    RETURN NOT v_lease_open;
END $$;
