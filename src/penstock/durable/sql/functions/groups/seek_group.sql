-- seek_group_v1: move a group to another offset in up to p_limit partitions of its queue with an id above p_after.
-- With p_partition_id it moves that partition only. p_target is `all` (the first message kept), `new` (after the last
-- message), or a timestamp (the first message pushed then or later).
-- The group starts anew there: its leases end, so that acks under them have no effect, and messages finished out of
-- order, returned or failed are forgotten. Its total follows its cursors, so depth stays exact.
-- Returns: the number of partitions read and moved, the messages moved forward and back, and the last partition id.
-- Locks: partition rows by id, so that no push runs meanwhile; then the positions by partition.
CREATE OR REPLACE FUNCTION seek_group_v1(
    p_group_id bigint, p_target text, p_partition_id bigint, p_after bigint, p_limit int
) RETURNS TABLE (partitions bigint, moved bigint, forward bigint, back bigint, last_id bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_queue queues;
    v_ids   bigint[];
BEGIN
    SELECT q.* INTO v_queue FROM groups g JOIN queues q ON q.id = g.queue_id WHERE g.id = p_group_id;
    v_ids := array(
        SELECT t.id FROM partitions t
        WHERE t.queue_id = v_queue.id AND t.id > p_after AND t.id = coalesce(p_partition_id, t.id)
        ORDER BY t.id LIMIT p_limit);
    PERFORM 1 FROM partitions t WHERE t.id = ANY (v_ids) ORDER BY t.id FOR NO KEY UPDATE;
    PERFORM 1 FROM positions p WHERE p.group_id = p_group_id AND p.partition_id = ANY (v_ids)
    ORDER BY p.partition_id FOR UPDATE;

    RETURN QUERY
    WITH starts AS MATERIALIZED (
        SELECT t.id AS partition_id, t.next_offset, p.cursor AS old_cursor, CASE p_target
                   WHEN 'all' THEN t.low_offset
                   WHEN 'new' THEN t.next_offset
                   ELSE offset_at_time_v1(t.id, p_target::timestamptz) END AS start
        FROM partitions t JOIN positions p ON p.partition_id = t.id AND p.group_id = p_group_id
        WHERE t.id = ANY (v_ids)
    ), targets AS MATERIALIZED (
        SELECT n.*, s.partition_id, n.cursor - s.old_cursor AS messages
        FROM starts s CROSS JOIN LATERAL next_position_state_v1(
            s.partition_id, s.start, deleted_offsets_v1(s.partition_id, s.start), v_queue.delay_ms, now(),
            p_next_offset => s.next_offset) n
    ), position_rows AS (
        UPDATE positions p SET
            cursor = w.cursor, finished = w.finished, returned = w.returned, attempts = w.attempts,
            lease_id = w.lease_id, ready_at = w.ready_at, redeliver_singly_until = 0, leased_at = NULL,
            lease_expires_at = NULL, lease_from = NULL, lease_to = NULL
        FROM targets w WHERE p.group_id = p_group_id AND p.partition_id = w.partition_id
    ), tally_rows AS (
        INSERT INTO tallies AS y (queue_id, group_id, slot, messages)
        SELECT v_queue.id, p_group_id, tally_slot_v1(), sum(w.messages) FROM targets w
        HAVING sum(w.messages) <> 0
        ON CONFLICT (queue_id, group_id, slot) DO UPDATE SET messages = y.messages + excluded.messages
    )
    SELECT count(*), count(*) FILTER (WHERE w.messages <> 0),
           coalesce(sum(w.messages) FILTER (WHERE w.messages > 0), 0)::bigint,
           coalesce(sum(-w.messages) FILTER (WHERE w.messages < 0), 0)::bigint,
           v_ids[cardinality(v_ids)]
    FROM targets w;
END $$;
