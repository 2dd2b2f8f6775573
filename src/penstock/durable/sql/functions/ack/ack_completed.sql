-- ack_completed_v1: run ack_v1 for items that are all `completed`, for a caller that knows their queue and group names.
-- Fast path: a lease of one message at the cursor, in a position without out-of-order, returned or failed messages.
-- Nearly all acks of consumers that pop one message at a time take it; most of the cost of ack_batch_completed_v1 is
-- preparation that they do not need. ack_batch_completed_v1 handles all other items.
-- Returns: first a row with the item numbers of the fast path (NULL if there are none) and the time each message was
-- held; these are completed and their leases released. Then rows for the other items, as in ack_v1.
-- Locks: position rows by partition and group; then tallies by queue and group.
CREATE OR REPLACE FUNCTION ack_completed_v1(
    p_partition_ids bigint[], p_group_ids bigint[], p_lease_ids uuid[], p_transaction_ids text[],
    p_now timestamptz DEFAULT NULL
) RETURNS TABLE (items int[], run_ms bigint[], outcome text, queue_id bigint, queue text, partition text,
                 group_name text, lease_released boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    WITH locked AS MATERIALIZED (
        SELECT k.item, k.transaction_id, p.ctid AS row_id, p.partition_id, p.group_id, p.cursor,
               CASE WHEN p.lease_id = k.lease_id AND p.lease_from = p.cursor AND p.lease_to = p.cursor + 1
                         AND isempty(p.finished) AND isempty(p.returned) AND p.attempts = '{}'
                    THEN p.lease_expires_at END AS fast_lease_expires_at
        FROM unnest(p_partition_ids, p_group_ids, p_lease_ids, p_transaction_ids)
             WITH ORDINALITY AS k (partition_id, group_id, lease_id, transaction_id, item)
        JOIN positions p ON p.partition_id = k.partition_id AND p.group_id = k.group_id
        ORDER BY p.partition_id, p.group_id FOR UPDATE OF p
    ), fast AS (
        SELECT h.item, h.row_id, h.group_id, h.cursor, m.next_ready_at + CASE
                   -- Few queues have a delay, so the query reads once for all items which ones do. It looks them up by
                   -- key: a join could get a plan made for few queues that reads all of them.
                   WHEN h.group_id = ANY (ARRAY(
                       SELECT g.id FROM groups g WHERE g.id = ANY (p_group_ids)
                       AND (SELECT q.delay_ms FROM queues q WHERE q.id = g.queue_id) > 0))
                   THEN (SELECT q.delay_ms FROM queues q
                         WHERE q.id = (SELECT g.queue_id FROM groups g WHERE g.id = h.group_id))
                   ELSE 0 END * interval '1 millisecond' AS next_ready_at
        FROM locked h
        CROSS JOIN LATERAL (
            -- One read of the log for the message and the next one, which mostly are segments of their own. Only if
            -- they are not, the query looks for the segment that starts before: that reads half a page of the index.
            SELECT bool_or(h.transaction_id = coalesce(
                       l.transaction_ids[h.cursor - l.first_offset + 1],
                       l.message_ids[h.cursor - l.first_offset + 1]::text)) AS is_match,
                   max(l.created_at) FILTER (WHERE l.last_offset > h.cursor) AS next_ready_at
            FROM (SELECT l.first_offset, l.last_offset, l.created_at, l.message_ids, l.transaction_ids FROM log l
                  WHERE l.partition_id = h.partition_id AND l.first_offset BETWEEN h.cursor AND h.cursor + 1
                  UNION ALL
                  (SELECT l.first_offset, l.last_offset, l.created_at, l.message_ids, l.transaction_ids FROM log l
                   WHERE l.partition_id = h.partition_id AND l.first_offset < h.cursor
                   ORDER BY l.first_offset DESC LIMIT 1)
                  LIMIT 2) l
        ) m
        WHERE h.fast_lease_expires_at > coalesce(p_now, clock_timestamp()) AND m.is_match
    ), acked AS (
        UPDATE positions p SET cursor = s.cursor + 1, lease_id = NULL,
               ready_at = coalesce(s.next_ready_at, p_now, clock_timestamp())
        -- By ctid: the row is locked, so its ctid cannot change. A row that changed before it was locked is not found
        -- at that ctid; the batch below handles it.
        FROM fast s WHERE p.ctid = s.row_id
        RETURNING s.item, s.group_id,
                  (extract(epoch FROM coalesce(p_now, clock_timestamp()) - p.leased_at) * 1000)::bigint AS run_ms
    ), tally_rows AS (
        INSERT INTO tallies AS y (queue_id, group_id, slot, messages, completed)
        SELECT (SELECT g.queue_id FROM groups g WHERE g.id = s.group_id), s.group_id, tally_slot_v1(), count(*), count(*)
        FROM acked s GROUP BY s.group_id ORDER BY 1, 2
        ON CONFLICT (queue_id, group_id, slot) DO UPDATE
        SET messages = y.messages + excluded.messages, completed = y.completed + excluded.completed
    )
    SELECT array_agg(s.item::int), array_agg(s.run_ms) INTO items, run_ms FROM acked s;
    RETURN NEXT;
    IF cardinality(items) = cardinality(p_partition_ids) THEN
        RETURN;
    END IF;

    RETURN QUERY
    SELECT c.items, array_fill(c.run_ms, ARRAY[cardinality(c.items)]), c.outcome, c.queue_id, c.queue, c.partition,
           c.group_name, c.lease_released
    FROM (
        SELECT array_agg(k.item::int) AS items, array_agg(k.partition_id) AS partition_ids,
               array_agg(k.group_id) AS group_ids, array_agg(k.lease_id) AS lease_ids,
               array_agg(k.transaction_id) AS transaction_ids
        FROM unnest(p_partition_ids, p_group_ids, p_lease_ids, p_transaction_ids)
             WITH ORDINALITY AS k (partition_id, group_id, lease_id, transaction_id, item)
        WHERE k.item <> ALL (coalesce(ack_completed_v1.items, '{}'))
    ) k CROSS JOIN LATERAL ack_batch_completed_v1(k.items, k.partition_ids, k.group_ids, k.lease_ids, k.transaction_ids,
                                       coalesce(p_now, clock_timestamp())) c;
END $$;
