-- finish_range_v1: finish messages for a group, leased or not.
-- A lease ends if these are its last unfinished messages. A position that waits for a retry or a delay keeps waiting.
-- Runs under the caller's lock on the position.
CREATE OR REPLACE FUNCTION finish_range_v1(
    p_partition_id bigint, p_group_id bigint, p_offsets int8multirange, p_now timestamptz
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_previous positions;
BEGIN
    SELECT * INTO v_previous FROM positions WHERE partition_id = p_partition_id AND group_id = p_group_id;
    PERFORM settle_position_v1(p_partition_id, p_group_id, p_offsets, '{}', p_now);
    IF v_previous.lease_id IS NULL THEN
        UPDATE positions p SET ready_at = CASE
            WHEN p.cursor = v_previous.cursor THEN v_previous.ready_at
            ELSE greatest(v_previous.ready_at, message_created_at_v1(p.partition_id, p.cursor)
                                             + q.delay_ms * interval '1 millisecond') END
        FROM partitions t JOIN queues q ON q.id = t.queue_id
        WHERE p.partition_id = p_partition_id AND p.group_id = p_group_id AND t.id = p.partition_id;
    END IF;
END $$;
