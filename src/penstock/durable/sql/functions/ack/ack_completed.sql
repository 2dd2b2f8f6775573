-- ack_completed_v1: run ack_v1 for items that are all `completed`, by lease, for a caller that knows their queue and group
-- names. The items of lease k end with p_transaction_ids[p_ends[k]]. No position occurs twice.
-- Fast path: all messages of a lease in their order, from the cursor on, in a position without out-of-order, returned or
-- failed messages. Nearly all acks take it; most of the cost of ack_batch_completed_v1 is preparation, and joins of
-- single messages, that they do not need. ack_batch_completed_v1 handles all other items.
-- Returns: first a row with the lease numbers of the fast path (NULL if there are none) and the time each lease was
-- held; these are completed and released. Then rows for the items of the other leases, as in ack_v1.
-- Locks: position rows by partition and group; then tallies by queue and group.
CREATE OR REPLACE FUNCTION ack_completed_v1(
    p_partition_ids bigint[], p_group_ids bigint[], p_lease_ids uuid[], p_ends int[], p_transaction_ids text[],
    p_now timestamptz DEFAULT NULL
) RETURNS TABLE (items int[], run_ms bigint[], outcome text, queue_id bigint, queue text, partition text,
                 group_name text, lease_released boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    WITH locked AS MATERIALIZED (
        SELECT k.lease, k.end_item, p.ctid AS row_id, p.partition_id, p.group_id, p.cursor, p.lease_to,
               p.lease_to - p.cursor AS messages,
               CASE WHEN p.lease_id = k.lease_id AND p.lease_from = p.cursor
                         AND p.lease_to - p.cursor = k.end_item - coalesce(p_ends[k.lease - 1], 0)
                         AND isempty(p.finished) AND isempty(p.returned) AND p.attempts = '{}'
                    THEN p.lease_expires_at END AS fast_lease_expires_at
        FROM unnest(p_partition_ids, p_group_ids, p_lease_ids, p_ends)
             WITH ORDINALITY AS k (partition_id, group_id, lease_id, end_item, lease)
        JOIN positions p ON p.partition_id = k.partition_id AND p.group_id = k.group_id
        ORDER BY p.partition_id, p.group_id FOR UPDATE OF p
    ), group_queues AS MATERIALIZED (
        -- By key: a join could get a plan made for few queues that reads all of them.
        SELECT g.id AS group_id, g.queue_id,
               (SELECT q.delay_ms FROM queues q WHERE q.id = g.queue_id) * interval '1 millisecond' AS delay
        FROM groups g WHERE g.id = ANY (p_group_ids)
    ), fast AS (
        SELECT h.lease, h.row_id, h.group_id, h.lease_to, h.messages, m.next_ready_at
                   + (SELECT q.delay FROM group_queues q WHERE q.group_id = h.group_id) AS next_ready_at
        FROM locked h
        CROSS JOIN LATERAL (
            -- One read of the log for the messages and the one after them. Only if no segment starts with each of
            -- these, the query looks for the segment that starts before: that reads half a page of the index.
            SELECT sum(least(l.last_offset + 1, h.lease_to) - greatest(l.first_offset, h.cursor)) FILTER (
                       WHERE l.first_offset < h.lease_to AND CASE WHEN h.messages = 1
                       -- The same as below, without building arrays.
                       THEN p_transaction_ids[h.end_item] = coalesce(
                           l.transaction_ids[h.cursor - l.first_offset + 1],
                           l.message_ids[h.cursor - l.first_offset + 1]::text)
                       ELSE p_transaction_ids[
                           h.end_item - h.lease_to + greatest(l.first_offset, h.cursor) + 1
                           :h.end_item - h.lease_to + least(l.last_offset + 1, h.lease_to)]
                       = CASE WHEN l.transaction_ids IS NULL
                              THEN l.message_ids[greatest(h.cursor - l.first_offset, 0) + 1
                                                 :h.lease_to - l.first_offset]::text[]
                              ELSE l.transaction_ids[greatest(h.cursor - l.first_offset, 0) + 1
                                                     :h.lease_to - l.first_offset] END END) AS matches,
                   max(l.created_at) FILTER (WHERE l.last_offset >= h.lease_to) AS next_ready_at
            FROM (SELECT l.first_offset, l.last_offset, l.created_at, l.message_ids, l.transaction_ids FROM log l
                  WHERE l.partition_id = h.partition_id AND l.first_offset BETWEEN h.cursor AND h.lease_to
                  UNION ALL
                  (SELECT l.first_offset, l.last_offset, l.created_at, l.message_ids, l.transaction_ids FROM log l
                   WHERE l.partition_id = h.partition_id AND l.first_offset < h.cursor
                   ORDER BY l.first_offset DESC LIMIT 1)
                  LIMIT h.messages + 1) l
        ) m
        WHERE h.fast_lease_expires_at > coalesce(p_now, clock_timestamp()) AND m.matches = h.messages
    ), acked AS (
        UPDATE positions p SET cursor = s.lease_to, lease_id = NULL,
               ready_at = coalesce(s.next_ready_at, p_now, clock_timestamp())
        -- By ctid: the row is locked, so its ctid cannot change. A row that changed before it was locked is not found
        -- at that ctid; the batch below handles it.
        FROM fast s WHERE p.ctid = s.row_id
        RETURNING s.lease, s.group_id, s.messages,
                  (extract(epoch FROM coalesce(p_now, clock_timestamp()) - p.leased_at) * 1000)::bigint AS run_ms
    ), tally_rows AS (
        INSERT INTO tallies AS y (queue_id, group_id, slot, messages, completed)
        SELECT (SELECT q.queue_id FROM group_queues q WHERE q.group_id = s.group_id), s.group_id, tally_slot_v1(),
               sum(s.messages), sum(s.messages)
        FROM acked s GROUP BY s.group_id ORDER BY 1, 2
        ON CONFLICT (queue_id, group_id, slot) DO UPDATE
        SET messages = y.messages + excluded.messages, completed = y.completed + excluded.completed
    )
    SELECT array_agg(s.lease::int), array_agg(s.run_ms) INTO items, run_ms FROM acked s;
    RETURN NEXT;
    IF cardinality(items) = cardinality(p_partition_ids) THEN
        RETURN;
    END IF;

    RETURN QUERY
    SELECT c.items, array_fill(c.run_ms, ARRAY[cardinality(c.items)]), c.outcome, c.queue_id, c.queue, c.partition,
           c.group_name, c.lease_released
    FROM (
        SELECT array_agg(i.item) AS items, array_agg(k.partition_id) AS partition_ids,
               array_agg(k.group_id) AS group_ids, array_agg(k.lease_id) AS lease_ids,
               array_agg(p_transaction_ids[i.item]) AS transaction_ids
        FROM unnest(p_partition_ids, p_group_ids, p_lease_ids, p_ends)
             WITH ORDINALITY AS k (partition_id, group_id, lease_id, end_item, lease)
        CROSS JOIN LATERAL generate_series(coalesce(p_ends[k.lease - 1], 0) + 1, k.end_item) AS i (item)
        WHERE k.lease <> ALL (coalesce(ack_completed_v1.items, '{}'))
    ) k CROSS JOIN LATERAL ack_batch_completed_v1(k.items, k.partition_ids, k.group_ids, k.lease_ids, k.transaction_ids,
                                       coalesce(p_now, clock_timestamp())) c;
END $$;
