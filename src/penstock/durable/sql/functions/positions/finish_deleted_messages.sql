-- finish_deleted_messages_v1: finish for a new group the messages that were deleted before it was created.
-- Runs in the transaction that creates the positions, before they are counted.
CREATE OR REPLACE FUNCTION finish_deleted_messages_v1(p_group_id bigint) RETURNS void
LANGUAGE sql AS $$
    UPDATE positions p SET cursor = n.cursor, finished = n.finished, ready_at = n.ready_at
    FROM (
        SELECT s.partition_id, n.*
        FROM groups g
        JOIN queues q ON q.id = g.queue_id
        JOIN partitions t ON t.queue_id = q.id
        JOIN positions s ON s.partition_id = t.id AND s.group_id = g.id
        CROSS JOIN LATERAL next_position_state_v1(
            s.partition_id, s.cursor, deleted_offsets_v1(s.partition_id, s.cursor), q.delay_ms, now(),
            p_ready_at => s.ready_at) n
        WHERE g.id = p_group_id
          AND EXISTS (SELECT 1 FROM deleted_messages d WHERE d.partition_id = s.partition_id)
    ) n WHERE p.group_id = p_group_id AND p.partition_id = n.partition_id
$$;
