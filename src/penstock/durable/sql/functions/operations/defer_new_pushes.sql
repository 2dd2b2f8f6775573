-- defer_new_pushes_v1: accept pushes as operations, without the items that could not be executed.
-- Takes pushes as defer_pushes_v1 does, and leaves out items whose transaction id is stored or repeats that of an earlier
-- item, and items that do not fit into their queue beside the pushes that wait already. An item whose transaction id
-- waits in a lane is accepted: it is found to be a duplicate when it is executed.
-- Returns: one row. places as defer_pushes_v1 returns them, 0 for an operation of which no item was accepted;
-- duplicate_items (1-based) with duplicate_ids, the messages they repeat; refused_items did not fit.
-- Locks: partition rows by id, then queues that have a size limit.
CREATE OR REPLACE FUNCTION defer_new_pushes_v1(
    p_ids uuid[], p_partition_ids bigint[], p_reason text, p_priority int, p_lengths int[], p_message_ids uuid[],
    p_transaction_ids text[], p_trace_ids uuid[], p_payloads bytea[], p_now timestamptz DEFAULT NULL,
    OUT places int[], OUT duplicate_items int[], OUT duplicate_ids uuid[], OUT refused_items int[]
)
LANGUAGE plpgsql AS $$
DECLARE
    v_has_size_limit boolean := EXISTS (SELECT 1 FROM partitions p JOIN queues q ON q.id = p.queue_id
                                        WHERE p.id = ANY (p_partition_ids) AND q.max_size > 0);
    v_items          record;     -- the accepted items
    v_operations     record;     -- the operations that have any
    v_places         int[];
BEGIN
    PERFORM 1 FROM partitions WHERE id = ANY (p_partition_ids) ORDER BY id FOR NO KEY UPDATE;
    SELECT * INTO duplicate_items, duplicate_ids, refused_items
    FROM skipped_items_v1(p_partition_ids, p_lengths, p_message_ids, p_transaction_ids, v_has_size_limit);
    IF duplicate_items IS NULL AND refused_items IS NULL THEN
        places := defer_pushes_v1(p_ids, p_partition_ids, p_reason, p_priority, p_lengths, p_message_ids,
                                  p_transaction_ids, p_trace_ids, p_payloads, p_now);
        RETURN;
    END IF;
    SELECT * INTO v_items
    FROM without_items_v1(p_lengths, p_message_ids, p_transaction_ids, p_trace_ids, p_payloads,
                          coalesce(duplicate_items, '{}') || coalesce(refused_items, '{}'));
    SELECT array_agg(o.id ORDER BY o.n) AS ids, array_agg(o.partition_id ORDER BY o.n) AS partition_ids,
           array_agg(o.length ORDER BY o.n) AS lengths
    INTO v_operations
    FROM unnest(p_ids, p_partition_ids, v_items.lengths) WITH ORDINALITY AS o (id, partition_id, length, n)
    WHERE o.length > 0;
    IF v_operations.ids IS NOT NULL THEN
        v_places := defer_pushes_v1(v_operations.ids, v_operations.partition_ids, p_reason, p_priority,
                                    v_operations.lengths, v_items.message_ids, v_items.transaction_ids,
                                    v_items.trace_ids, v_items.payloads, p_now);
    END IF;
    places := array(SELECT CASE WHEN a.n IS NULL THEN 0 ELSE v_places[a.n] END
                    FROM unnest(p_ids) WITH ORDINALITY AS o (id, n)
                    LEFT JOIN unnest(v_operations.ids) WITH ORDINALITY AS a (id, n) ON a.id = o.id ORDER BY o.n);
END $$;
