-- delete_message_v1: delete a message for all groups, also for groups that are created later.
-- Overwrites its payload and deletes its dead letters. Its offset and ids stay, so order, depth and duplicate detection
-- do not change.
-- Returns: whether there was a message or a dead letter to delete.
-- Locks: chunk_stages, because empty_chunk_v1 moves the rows this writes to; the queue (shared), so that no group is
-- created meanwhile; the partition's row, then its positions by group.
CREATE OR REPLACE FUNCTION delete_message_v1(
    p_partition_id bigint, p_transaction_id text, p_now timestamptz DEFAULT NULL
) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_now     timestamptz := coalesce(p_now, clock_timestamp());
    v_offset  bigint;
    v_group   bigint;
    v_chunk   int;
    v_deleted boolean;
BEGIN
    LOCK TABLE chunk_stages IN ROW EXCLUSIVE MODE;
    PERFORM lock_queues_v1(array_agg(t.queue_id), false) FROM partitions t WHERE t.id = p_partition_id;
    PERFORM 1 FROM partitions t WHERE t.id = p_partition_id FOR NO KEY UPDATE;
    v_offset := find_message_v1(p_partition_id, p_transaction_id);
    IF v_offset IS NOT NULL THEN
        PERFORM 1 FROM positions p WHERE p.partition_id = p_partition_id ORDER BY p.group_id FOR UPDATE;
        INSERT INTO deleted_messages (partition_id, message_offset, deleted_at)
        VALUES (p_partition_id, v_offset, v_now) ON CONFLICT DO NOTHING;
        v_deleted := FOUND;
        FOR v_group IN
            SELECT p.group_id FROM positions p
            WHERE p.partition_id = p_partition_id AND p.cursor <= v_offset AND NOT p.finished @> v_offset
            ORDER BY p.group_id
        LOOP
            PERFORM finish_message_v1(p_partition_id, v_group, v_offset, v_now);
        END LOOP;
        UPDATE log l SET payloads[v_offset - l.first_offset + 1] = convert_to('null', 'UTF8')
        WHERE l.partition_id = p_partition_id AND l.last_offset >= v_offset AND l.first_offset = (
            SELECT b.first_offset FROM log b
            WHERE b.partition_id = p_partition_id AND b.first_offset <= v_offset
            ORDER BY b.first_offset DESC LIMIT 1)
        RETURNING l.chunk INTO v_chunk;
        -- The update gave the row a new ctid, which may be in blocks that empty_chunk_v1 has read already.
        UPDATE chunk_stages SET rows_moved = rows_moved + 1 WHERE chunk = v_chunk AND stage = 'emptying';
        -- Messages below low_offset were dropped by retention and need no mark any more.
        DELETE FROM deleted_messages d USING partitions t
        WHERE d.partition_id = p_partition_id AND t.id = d.partition_id AND d.message_offset < t.low_offset;
    END IF;
    DELETE FROM dead_letters d WHERE d.partition_id = p_partition_id AND d.transaction_id = p_transaction_id;
    RETURN coalesce(v_deleted, false) OR FOUND;
END $$;
