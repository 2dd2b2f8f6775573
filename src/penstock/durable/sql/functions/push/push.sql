-- push_v1: append messages to partitions, one segment per partition.
-- The items of all partitions are one flat list, in the order of p_partition_ids and p_lengths; each partition id
-- occurs once. An item without a transaction id of its own uses its message id.
-- Returns: one row. first_offsets has the first offset per segment: NULL if the partition does not exist, -1 if
-- operations wait in its lane (the caller must defer the segment). duplicate_items are the skipped duplicates
-- (1-based), duplicate_ids the messages they repeat. refused_items are the items that did not fit into their queue.
-- Locks: partition rows by id, then queues that have a size limit, tallies by queue, and positions that wait for a
-- message.
CREATE OR REPLACE FUNCTION push_v1(
    p_partition_ids bigint[], p_lengths int[], p_message_ids uuid[], p_transaction_ids text[],
    p_trace_ids uuid[], p_payloads bytea[], p_now timestamptz DEFAULT NULL,
    OUT first_offsets bigint[], OUT duplicate_items int[], OUT duplicate_ids uuid[], OUT refused_items int[]
)
LANGUAGE plpgsql AS $$
DECLARE
    v_now            timestamptz;
    v_chunk          int;
    v_has_keys       boolean := p_transaction_ids IS NOT NULL;
    v_has_size_limit boolean := EXISTS (SELECT 1 FROM partitions p JOIN queues q ON q.id = p.queue_id
                               WHERE p.id = ANY (p_partition_ids) AND q.max_size > 0);
    v_has_index_keys boolean;
    v_segments       record;
BEGIN
    -- Skipped items must be known before offsets are assigned. Otherwise assigning the offsets takes the lock.
    IF v_has_keys OR v_has_size_limit THEN
        PERFORM 1 FROM partitions WHERE id = ANY (p_partition_ids) ORDER BY id FOR NO KEY UPDATE;
        IF EXISTS (SELECT 1 FROM partitions WHERE id = ANY (p_partition_ids) AND deferred_pushes > 0) THEN
            SELECT * INTO first_offsets, duplicate_items, duplicate_ids, refused_items
            FROM push_to_empty_lanes_v1(p_partition_ids, p_lengths, p_message_ids, p_transaction_ids, p_trace_ids,
                                       p_payloads, p_now);
            RETURN;
        END IF;
        IF v_has_size_limit THEN
            SELECT * INTO duplicate_items, duplicate_ids, refused_items
            FROM skipped_items_v1(p_partition_ids, p_lengths, p_message_ids, p_transaction_ids, true);
        ELSE
            -- As skipped_items_v1 does, whose call would take a sixth of the time of a push.
            SELECT array_agg(d.item::int ORDER BY d.item), array_agg(d.original ORDER BY d.item)
            INTO duplicate_items, duplicate_ids
            FROM find_duplicates_v1(p_partition_ids, p_lengths, p_message_ids, p_transaction_ids) d;
        END IF;
        IF duplicate_items IS NOT NULL OR refused_items IS NOT NULL THEN
            SELECT * INTO p_lengths, p_message_ids, p_transaction_ids, p_trace_ids, p_payloads
            FROM without_items_v1(p_lengths, p_message_ids, p_transaction_ids, p_trace_ids, p_payloads,
                                  coalesce(duplicate_items, '{}') || coalesce(refused_items, '{}'));
        END IF;
    END IF;

    WITH segments AS MATERIALIZED (
        SELECT s.n, s.partition_id, s.length, sum(s.length) OVER (ORDER BY s.n) AS hi
        FROM unnest(p_partition_ids, p_lengths) WITH ORDINALITY AS s (partition_id, length, n)
    ), located AS (
        -- In the order of ids, so that two pushes never wait for each other.
        UPDATE partitions p SET next_offset = p.next_offset + s.length,
               pushed_at = CASE WHEN s.length > 0 THEN coalesce(p_now, clock_timestamp()) ELSE p.pushed_at END
        FROM (SELECT * FROM segments ORDER BY partition_id) s WHERE p.id = s.partition_id AND p.deferred_pushes = 0
        RETURNING s.n, p.id AS partition_id, p.queue_id, s.length, s.hi, p.next_offset - s.length AS first_offset
    )
    SELECT array_agg(w.partition_id ORDER BY s.n) AS partition_ids, array_agg(w.queue_id ORDER BY s.n) AS queue_ids,
           array_agg(w.length ORDER BY s.n) AS lengths, array_agg(w.hi ORDER BY s.n) AS his,
           array_agg(w.first_offset ORDER BY s.n) AS first_offsets
    INTO v_segments
    FROM segments s LEFT JOIN located w USING (n);
    first_offsets := v_segments.first_offsets;
    IF array_position(first_offsets, NULL) IS NOT NULL THEN
        SELECT array_agg(CASE WHEN f.first_offset IS NULL AND p.id IS NOT NULL THEN -1 ELSE f.first_offset END
                         ORDER BY f.n)
        INTO first_offsets
        FROM unnest(p_partition_ids, first_offsets) WITH ORDINALITY AS f (partition_id, first_offset, n)
        LEFT JOIN partitions p ON p.id = f.partition_id;
    END IF;
    -- Read under the locks, in separate statements: time and chunk never go backwards within a partition.
    v_now := coalesce(p_now, clock_timestamp());
    SELECT c.id, EXISTS (SELECT 1 FROM queues q WHERE q.id = ANY (v_segments.queue_ids) AND q.index_keys IS NOT NULL)
    INTO v_chunk, v_has_index_keys
    FROM chunks c ORDER BY c.id DESC LIMIT 1;

    WITH located AS MATERIALIZED (
        SELECT * FROM unnest(v_segments.partition_ids, v_segments.queue_ids, v_segments.lengths, v_segments.his,
                             v_segments.first_offsets) AS w (partition_id, queue_id, length, hi, first_offset)
        WHERE w.length > 0
    ), log_rows AS (
        INSERT INTO log (chunk, partition_id, first_offset, last_offset, created_at, message_ids,
                         transaction_ids, trace_ids, payloads)
        SELECT v_chunk, w.partition_id, w.first_offset, w.first_offset + w.length - 1, v_now,
               p_message_ids[w.hi - w.length + 1:w.hi], p_transaction_ids[w.hi - w.length + 1:w.hi],
               p_trace_ids[w.hi - w.length + 1:w.hi], p_payloads[w.hi - w.length + 1:w.hi]
        FROM located w
    ), key_rows AS (
        INSERT INTO message_keys (chunk, partition_id, key, message_offset)
        SELECT v_chunk, w.partition_id, md5(k.transaction_id)::uuid, w.first_offset + k.i - 1
        FROM located w
        CROSS JOIN LATERAL unnest(p_transaction_ids[w.hi - w.length + 1:w.hi])
                   WITH ORDINALITY AS k (transaction_id, i)
        WHERE v_has_keys AND k.transaction_id IS NOT NULL
    ), tally_rows AS (
        INSERT INTO tallies AS t (queue_id, group_id, slot, messages)
        SELECT w.queue_id, 0, tally_slot_v1(), sum(w.length) FROM located w
        GROUP BY w.queue_id ORDER BY w.queue_id
        ON CONFLICT (queue_id, group_id, slot) DO UPDATE SET messages = t.messages + excluded.messages
    )
    UPDATE positions p SET ready_at = v_now + q.delay_ms * interval '1 millisecond'
    FROM located w JOIN queues q ON q.id = w.queue_id
    WHERE p.partition_id = w.partition_id AND p.ready_at IS NULL;
    IF v_has_index_keys THEN
        PERFORM index_messages_v1(v_chunk, v_segments.partition_ids, v_segments.queue_ids, v_segments.lengths,
                                  v_segments.his, v_segments.first_offsets, p_payloads);
    END IF;
END $$;
