-- ack_batch_completed_v1: run ack_v1 for items that are all `completed`, any number of positions in one statement.
-- Runs under the caller's locks. p_items numbers the items for the result.
-- Returns: as ack_v1.
CREATE OR REPLACE FUNCTION ack_batch_completed_v1(
    p_items int[], p_partition_ids bigint[], p_group_ids bigint[], p_lease_ids uuid[],
    p_transaction_ids text[], p_now timestamptz
) RETURNS TABLE (items int[], outcome text, queue_id bigint, queue text, partition text, group_name text,
                 lease_released boolean, run_ms bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH items_in AS MATERIALIZED (
        SELECT * FROM unnest(p_items, p_partition_ids, p_group_ids, p_lease_ids, p_transaction_ids)
                      AS k (item, partition_id, group_id, lease_id, transaction_id)
    ), leased_positions AS MATERIALIZED (
        SELECT p.partition_id, p.group_id, p.lease_id, p.cursor, p.lease_from, p.lease_to, p.finished, p.returned,
               p.attempts, p.ready_at, p.leased_at, t.name AS partition, t.queue_id, q.name AS queue, q.delay_ms,
               q.retry_delay_ms, g.name AS group_name
        FROM (SELECT DISTINCT k.partition_id, k.group_id, k.lease_id FROM items_in k) k
        JOIN positions p ON p.partition_id = k.partition_id AND p.group_id = k.group_id
                        AND p.lease_id = k.lease_id AND p.lease_expires_at > p_now
        JOIN partitions t ON t.id = p.partition_id
        JOIN queues q ON q.id = t.queue_id
        JOIN groups g ON g.id = p.group_id
    ), leased_messages AS (
        SELECT h.partition_id, h.group_id, s.first_offset + m.n - 1 AS message_offset,
               coalesce(s.transaction_ids[m.n], m.id::text) AS transaction_id
        FROM leased_positions h
        CROSS JOIN LATERAL segments_v1(h.partition_id, h.lease_from, h.lease_to) s
        CROSS JOIN LATERAL unnest(s.message_ids) WITH ORDINALITY AS m (id, n)
        WHERE s.first_offset + m.n > h.cursor AND NOT h.finished + h.returned @> s.first_offset + m.n - 1
    ), matched AS MATERIALIZED (
        SELECT k.item, k.partition_id, k.group_id, h.lease_id IS NOT NULL AS is_leased,
               CASE WHEN row_number() OVER (PARTITION BY l.partition_id, l.group_id, l.message_offset
                                            ORDER BY k.item) = 1 THEN l.message_offset END AS message_offset
        FROM items_in k
        LEFT JOIN leased_positions h ON h.partition_id = k.partition_id AND h.group_id = k.group_id
                        AND h.lease_id = k.lease_id
        LEFT JOIN leased_messages l ON h.lease_id IS NOT NULL AND l.partition_id = k.partition_id
                          AND l.group_id = k.group_id AND l.transaction_id = k.transaction_id
    ), completed AS (
        SELECT m.partition_id, m.group_id,
               range_agg(int8range(m.message_offset, m.message_offset + 1)) AS ranges, count(*) AS completed
        FROM matched m WHERE m.message_offset IS NOT NULL GROUP BY m.partition_id, m.group_id
    ), new_state AS MATERIALIZED (
        SELECT n.*, h.partition_id, h.group_id, h.queue_id, n.cursor - h.cursor AS messages, f.completed
        FROM leased_positions h
        JOIN completed f ON f.partition_id = h.partition_id AND f.group_id = h.group_id
        CROSS JOIN LATERAL next_position_state_v1(
            h.partition_id, h.cursor, h.finished + f.ranges, h.delay_ms, p_now, h.attempts, h.ready_at,
            p_lease_id => h.lease_id, p_lease_to => h.lease_to, p_returned => h.returned,
            p_retry_delay_ms => h.retry_delay_ms) n
    ), position_rows AS (
        UPDATE positions p SET cursor = s.cursor, finished = s.finished, returned = s.returned, attempts = s.attempts,
               lease_id = s.lease_id, ready_at = s.ready_at
        FROM new_state s WHERE p.partition_id = s.partition_id AND p.group_id = s.group_id
    ), tally_rows AS (
        INSERT INTO tallies AS t (queue_id, group_id, slot, messages, completed)
        SELECT s.queue_id, s.group_id, tally_slot_v1(), sum(s.messages), sum(s.completed) FROM new_state s
        GROUP BY s.queue_id, s.group_id ORDER BY s.queue_id, s.group_id
        ON CONFLICT (queue_id, group_id, slot) DO UPDATE
        SET messages = t.messages + excluded.messages, completed = t.completed + excluded.completed
    )
    SELECT a.items, a.outcome, h.queue_id, h.queue, h.partition, h.group_name,
           s.partition_id IS NOT NULL AND s.lease_id IS NULL, (extract(epoch FROM p_now - h.leased_at) * 1000)::bigint
    FROM (SELECT array_agg(m.item) AS items, m.partition_id, m.group_id, m.is_leased,
                 CASE WHEN NOT m.is_leased THEN 'lease_lost' WHEN m.message_offset IS NULL THEN 'not_leased'
                      ELSE 'completed' END AS outcome
          FROM matched m GROUP BY 2, 3, 4, 5) a
    LEFT JOIN leased_positions h ON a.is_leased AND h.partition_id = a.partition_id AND h.group_id = a.group_id
    LEFT JOIN new_state s ON a.is_leased AND s.partition_id = a.partition_id AND s.group_id = a.group_id;
END $$;
