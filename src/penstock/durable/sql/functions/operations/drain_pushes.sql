-- drain_pushes_v1: execute the next pushes of lanes that the caller has locked.
-- Returns: a row per partition with the number of operations and of messages added.
-- Raises: PK005 a queue is full.
-- Locks: partition rows by id, then those of push_v1.
CREATE OR REPLACE FUNCTION drain_pushes_v1(p_lanes bigint[], p_operations int, p_now timestamptz)
RETURNS TABLE (operations int, organization text, project text, environment text, queue_id bigint, queue text,
               partition_id bigint, group_name text, outcome text, messages int, run_ms bigint[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_lane_lengths  int[];      -- the number of operations in each lane before the drain
    v_operations    record;
    v_lanes         bigint[];   -- the partitions that have operations, in the order of the items
    v_items         record;
    v_pushed        record;
BEGIN
    SELECT * INTO v_operations FROM lock_next_operations_v1('push', p_lanes, p_operations);
    IF v_operations.ids IS NULL THEN
        RETURN;
    END IF;
    SELECT array_agg(p.id ORDER BY p.id), array_agg(p.deferred_pushes ORDER BY p.id) INTO v_lanes, v_lane_lengths
    FROM partitions p WHERE p.id = ANY (v_operations.partition_ids);
    SELECT array_agg(k.message_id ORDER BY w.n, k.i) AS message_ids, array_agg(k.payload ORDER BY w.n, k.i) AS payloads,
           CASE WHEN bool_or(k.transaction_id IS NOT NULL) THEN array_agg(k.transaction_id ORDER BY w.n, k.i) END
               AS transaction_ids,
           CASE WHEN bool_or(k.trace_id IS NOT NULL) THEN array_agg(k.trace_id ORDER BY w.n, k.i) END AS trace_ids
    INTO v_items
    FROM unnest(v_operations.ids) WITH ORDINALITY AS w (id, n)
    JOIN operations o ON o.id = w.id
    CROSS JOIN LATERAL unnest(o.message_ids, o.transaction_ids, o.trace_ids, o.payloads) WITH ORDINALITY
               AS k (message_id, transaction_id, trace_id, payload, i);

    -- push_v1 refuses partitions with a non-empty lane, so the lane is marked empty for this push. The row lock keeps
    -- other transactions from seeing it.
    UPDATE partitions p SET deferred_pushes = 0 WHERE p.id = ANY (v_lanes);
    SELECT * INTO v_pushed FROM push_v1(
        v_lanes, array(SELECT sum(l.length)::int
                       FROM unnest(v_operations.partition_ids, v_operations.lengths) AS l (partition_id, length)
                       GROUP BY l.partition_id ORDER BY l.partition_id),
        v_items.message_ids, v_items.transaction_ids, v_items.trace_ids, v_items.payloads, p_now);
    UPDATE partitions p SET deferred_pushes = s.deferred_pushes
    FROM unnest(v_lanes, v_lane_lengths) AS s (partition_id, deferred_pushes) WHERE p.id = s.partition_id;
    IF v_pushed.refused_items IS NOT NULL THEN
        RAISE EXCEPTION 'the queue is full: it has reached its maxSize' USING ERRCODE = 'PK005';
    END IF;

    WITH completed_operations AS MATERIALIZED (
        SELECT w.id, w.partition_id, w.length, sum(w.length) OVER (ORDER BY w.n) AS hi
        FROM unnest(v_operations.ids, v_operations.partition_ids, v_operations.lengths) WITH ORDINALITY
             AS w (id, partition_id, length, n)
    ), duplicates_by_operation AS (
        SELECT w.id, jsonb_object_agg(d.item - (w.hi - w.length) - 1, d.original) AS duplicates
        FROM completed_operations w JOIN unnest(v_pushed.duplicate_items, v_pushed.duplicate_ids) AS d (item, original)
                      ON d.item > w.hi - w.length AND d.item <= w.hi
        GROUP BY w.id
    )
    UPDATE operations o SET status = 'completed', finished_at = clock_timestamp(), payloads = NULL, error = NULL,
           result = jsonb_build_object('duplicates', coalesce(r.duplicates, '{}'))
    FROM completed_operations w LEFT JOIN duplicates_by_operation r ON r.id = w.id WHERE o.id = w.id;
    PERFORM remove_from_lanes_v1('push', p_lanes, v_operations.counts);

    RETURN QUERY
    WITH lengths AS (
        SELECT l.partition_id, sum(l.length) AS messages,
               sum(sum(l.length)) OVER (ORDER BY l.partition_id) AS hi
        FROM unnest(v_operations.partition_ids, v_operations.lengths) AS l (partition_id, length)
        GROUP BY l.partition_id
    )
    SELECT c.operations, e.organization, e.project, e.name, q.id, q.name, k.partition_id, '', 'pushed',
           (k.messages - (SELECT count(*) FROM unnest(v_pushed.duplicate_items) d
                          WHERE d > k.hi - k.messages AND d <= k.hi))::int, NULL::bigint[]
    FROM lengths k
    JOIN unnest(p_lanes, v_operations.counts) AS c (partition_id, operations) ON c.partition_id = k.partition_id
    JOIN partitions p ON p.id = k.partition_id
    JOIN queues q ON q.id = p.queue_id
    JOIN environments e ON e.id = q.environment_id;
END $$;
