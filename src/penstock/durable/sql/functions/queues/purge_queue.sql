-- purge_queue_v1: drop all messages of a queue, in up to p_limit of its partitions with an id above p_after.
-- Dead letters stay. Leases end, so that acks under them have no effect.
-- Returns: a row without a group with the last partition read and the number of messages dropped that some group had
-- not finished (no row if there is no partition above p_after); and per group the messages it had not finished, group 0
-- if the queue has no group.
-- Locks: the queue (shared), so that a group created meanwhile does not start below low_offset; then partitions, so that
-- no push runs meanwhile, and positions, each in the order of their ids.
CREATE OR REPLACE FUNCTION purge_queue_v1(
    p_queue_id bigint, p_after bigint, p_limit int, p_now timestamptz DEFAULT NULL
) RETURNS TABLE (last_partition_id bigint, group_id bigint, messages bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_last          bigint;
    v_partition_ids bigint[];
    v_offsets       bigint[];
    v_messages      bigint;
BEGIN
    PERFORM lock_queues_v1(ARRAY[p_queue_id], false);
    v_partition_ids := array(
        SELECT t.id FROM partitions t WHERE t.queue_id = p_queue_id AND t.id > p_after ORDER BY t.id LIMIT p_limit);
    v_last := v_partition_ids[cardinality(v_partition_ids)];
    IF v_last IS NULL THEN
        RETURN;
    END IF;
    PERFORM 1 FROM partitions t WHERE t.id = ANY (v_partition_ids) ORDER BY t.id FOR NO KEY UPDATE;
    PERFORM 1 FROM positions p WHERE p.partition_id = ANY (v_partition_ids)
    ORDER BY p.partition_id, p.group_id FOR UPDATE;

    SELECT array_agg(t.id), array_agg(t.next_offset), coalesce(sum(u.messages), 0)
    INTO v_partition_ids, v_offsets, v_messages
    FROM partitions t
    CROSS JOIN LATERAL (
        SELECT int8multirange(int8range(t.low_offset, t.next_offset)) - deleted_offsets_v1(t.id, t.low_offset) AS kept
    ) k
    CROSS JOIN LATERAL (
        SELECT coalesce(range_agg(r), '{}') AS unfinished, count(DISTINCT p.group_id) AS groups
        FROM positions p
        LEFT JOIN LATERAL unnest(k.kept - int8multirange(int8range(NULL, p.cursor)) - p.finished) r ON true
        WHERE p.partition_id = t.id
    ) g
    CROSS JOIN LATERAL (
        SELECT sum(upper(r) - lower(r)) AS messages
        FROM unnest(CASE WHEN g.groups = 0 THEN k.kept ELSE g.unfinished END) r
    ) u
    WHERE t.id = ANY (v_partition_ids) AND t.low_offset < t.next_offset;
    RETURN QUERY SELECT v_last, NULL::bigint, v_messages;
    RETURN QUERY
    SELECT v_last, d.group_id, d.messages FROM drop_messages_below_v1(v_partition_ids, v_offsets, coalesce(p_now, clock_timestamp())) d;
END $$;
