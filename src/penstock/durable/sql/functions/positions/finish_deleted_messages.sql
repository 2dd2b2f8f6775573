-- finish_deleted_messages_v1: finish for a new group the messages that were deleted before it was created.
-- Runs in the transaction that creates the positions, before they are counted.
CREATE OR REPLACE FUNCTION finish_deleted_messages_v1(p_group_id bigint) RETURNS void
LANGUAGE sql AS $$
    WITH deleted AS (
        SELECT DISTINCT p.partition_id, p.cursor, deleted_offsets_v1(p.partition_id, p.cursor) AS offsets, q.delay_ms
        FROM groups g
        JOIN queues q ON q.id = g.queue_id
        JOIN partitions t ON t.queue_id = q.id
        JOIN deleted_messages d ON d.partition_id = t.id
        JOIN positions p ON p.partition_id = t.id AND p.group_id = g.id
        WHERE g.id = p_group_id
    ), heads AS (
        SELECT d.*, coalesce((SELECT upper(r) FROM unnest(d.offsets) r WHERE r @> d.cursor), d.cursor) AS head
        FROM deleted d
    )
    UPDATE positions p SET cursor = h.head, finished = h.offsets * int8multirange(int8range(h.head, NULL)),
           ready_at = coalesce(message_created_at_v1(p.partition_id, h.head) + h.delay_ms * interval '1 millisecond',
                               '-infinity')
    FROM heads h WHERE p.group_id = p_group_id AND p.partition_id = h.partition_id
$$;
