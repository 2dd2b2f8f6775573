-- ack_v1: ack messages under their leases.
-- Statuses: `completed` finishes the message. `dlq` moves it to the dead letters. `failed` counts a failed attempt: the
-- message is retried, or moved to the dead letters past the queue's retry limit. `retry` releases the message without
-- counting an attempt.
-- Only the first ack of a message under a lease counts, also within one call.
-- An item fails alone and changes nothing if its lease is not the one in force, has expired, or no longer holds the
-- message; its outcome says why.
-- Returns: a row per position and outcome, with its item numbers (1-based).
-- Locks: position rows by partition and group, in any order of the items; then tallies by queue and group.
CREATE OR REPLACE FUNCTION ack_v1(
    p_partition_ids bigint[], p_group_ids bigint[], p_lease_ids uuid[], p_transaction_ids text[],
    p_statuses text[], p_errors text[], p_now timestamptz DEFAULT NULL
) RETURNS TABLE (items int[], outcome text, queue_id bigint, queue text, partition text, group_name text,
                 lease_released boolean, run_ms bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now                 timestamptz;
    v_position            record;
    v_items               int[];
    v_outcomes            text[];
    v_offsets             bigint[];
    v_errors              text[];
    v_released            boolean;
    v_mixed_partition_ids bigint[];
BEGIN
    IF 'completed' = ALL (p_statuses)
       AND (SELECT count(DISTINCT k) FROM unnest(p_partition_ids) k) = cardinality(p_partition_ids) THEN
        RETURN QUERY
        WITH acked AS MATERIALIZED (
            SELECT * FROM ack_completed_v1(p_partition_ids, p_group_ids, p_lease_ids,
                                           array(SELECT generate_series(1, cardinality(p_partition_ids))),
                                           p_transaction_ids, p_now)
        )
        SELECT ARRAY[i.item], 'completed', q.id, q.name, t.name, g.name, true, i.run_ms
        FROM acked s CROSS JOIN LATERAL unnest(s.items, s.run_ms) AS i (item, run_ms)
        JOIN partitions t ON t.id = p_partition_ids[i.item]
        JOIN queues q ON q.id = t.queue_id
        JOIN groups g ON g.id = p_group_ids[i.item]
        WHERE s.outcome IS NULL
        UNION ALL
        SELECT s.items, s.outcome, s.queue_id, s.queue, s.partition, s.group_name, s.lease_released, s.run_ms[1]
        FROM acked s WHERE s.outcome IS NOT NULL;
        RETURN;
    END IF;

    PERFORM 1 FROM positions p
    WHERE (p.partition_id, p.group_id) IN (SELECT * FROM unnest(p_partition_ids, p_group_ids))
    ORDER BY p.partition_id, p.group_id FOR UPDATE;
    v_now := coalesce(p_now, clock_timestamp());

    -- Nearly all acks are `completed`, and one statement handles them. A position that also has another status is
    -- handled on its own below.
    v_mixed_partition_ids := array(SELECT DISTINCT k.partition_id
                      FROM unnest(p_partition_ids, p_statuses) AS k (partition_id, status)
                      WHERE k.status <> 'completed');
    IF cardinality(v_mixed_partition_ids) = 0 THEN
        RETURN QUERY
        SELECT * FROM ack_batch_completed_v1(array(SELECT generate_series(1, cardinality(p_partition_ids))),
                                  p_partition_ids, p_group_ids, p_lease_ids, p_transaction_ids, v_now);
        RETURN;
    END IF;
    PERFORM lock_tallies_v1(p_partition_ids, p_group_ids);
    RETURN QUERY
    SELECT c.* FROM (
        SELECT array_agg(k.item::int) AS items, array_agg(k.partition_id) AS partition_ids,
               array_agg(k.group_id) AS group_ids, array_agg(k.lease_id) AS lease_ids,
               array_agg(k.transaction_id) AS transaction_ids
        FROM unnest(p_partition_ids, p_group_ids, p_lease_ids, p_transaction_ids)
             WITH ORDINALITY AS k (partition_id, group_id, lease_id, transaction_id, item)
        WHERE k.partition_id <> ALL (v_mixed_partition_ids)
    ) k CROSS JOIN LATERAL ack_batch_completed_v1(k.items, k.partition_ids, k.group_ids, k.lease_ids,
                                       k.transaction_ids, v_now) c
    WHERE k.items IS NOT NULL;

    FOR v_position IN
        SELECT k.partition_id, k.group_id, k.lease_id, array_agg(k.item::int ORDER BY k.item) AS items,
               p.lease_from, p.lease_to, p.leased_at, p.attempts, p.cursor, p.finished + p.returned AS acked_offsets,
               p.lease_id = k.lease_id AND p.lease_expires_at > v_now AS is_leased,
               t.name AS partition, g.name AS group_name, q.name AS queue, q.id AS queue_id,
               q.retry_limit, q.dead_after_limit
        FROM unnest(p_partition_ids, p_group_ids, p_lease_ids)
             WITH ORDINALITY AS k (partition_id, group_id, lease_id, item)
        LEFT JOIN positions p ON p.partition_id = k.partition_id AND p.group_id = k.group_id
        LEFT JOIN partitions t ON t.id = p.partition_id
        LEFT JOIN queues q ON q.id = t.queue_id
        LEFT JOIN groups g ON g.id = p.group_id
        WHERE k.partition_id = ANY (v_mixed_partition_ids)
        GROUP BY k.partition_id, k.group_id, k.lease_id, p.partition_id, p.group_id, t.id, q.id, g.id
        ORDER BY k.partition_id, k.group_id
    LOOP
        IF v_position.is_leased IS NOT TRUE THEN
            -- Without names: the caller need not be allowed to know them.
            RETURN QUERY SELECT v_position.items, 'lease_lost', NULL::bigint, NULL::text, NULL::text, NULL::text, false,
                                NULL::bigint;
            CONTINUE;
        END IF;
        SELECT array_agg(o.item ORDER BY o.item), array_agg(o.message_offset ORDER BY o.item),
               array_agg(o.error ORDER BY o.item),
               array_agg(CASE
                   WHEN o.message_offset IS NULL THEN 'not_leased'
                   WHEN o.status = 'failed' THEN CASE
                       WHEN v_position.dead_after_limit AND v_position.retry_limit <= coalesce(
                            (v_position.attempts ->> o.message_offset::text)::int, 0)
                       THEN 'dead' ELSE 'failed' END
                   WHEN o.status = 'dlq' THEN 'dead'
                   ELSE o.status END ORDER BY o.item)
        INTO v_items, v_offsets, v_errors, v_outcomes
        FROM (
            SELECT i AS item, p_statuses[i] AS status, p_errors[i] AS error,
                   CASE WHEN row_number() OVER (PARTITION BY held.message_offset ORDER BY i) = 1
                        THEN held.message_offset END AS message_offset
            FROM unnest(v_position.items) i
            LEFT JOIN (
                SELECT s.first_offset + m.n - 1 AS message_offset,
                       coalesce(s.transaction_ids[m.n], m.id::text) AS transaction_id
                FROM segments_v1(v_position.partition_id, v_position.lease_from, v_position.lease_to) s
                CROSS JOIN LATERAL unnest(s.message_ids) WITH ORDINALITY AS m (id, n)
                WHERE s.first_offset + m.n > v_position.cursor
                  AND NOT v_position.acked_offsets @> s.first_offset + m.n - 1
            ) held ON held.transaction_id = p_transaction_ids[i]
        ) o;

        IF 'failed' = ANY (v_outcomes) THEN
            UPDATE positions p SET attempts = p.attempts || (
                SELECT jsonb_object_agg(o.message_offset,
                                        coalesce((p.attempts ->> o.message_offset::text)::int, 0) + 1)
                FROM unnest(v_offsets, v_outcomes) AS o (message_offset, outcome) WHERE o.outcome = 'failed')
            WHERE p.partition_id = v_position.partition_id AND p.group_id = v_position.group_id;
            -- For the life of the message. A message that is retried without end is recorded up to twenty times.
            INSERT INTO message_events (partition_id, first_offset, group_id, event, lease_id, offsets, began_at,
                                        happened_at, attempts, error)
            SELECT v_position.partition_id, o.message_offset, v_position.group_id, 'failed', v_position.lease_id,
                   int8multirange(int8range(o.message_offset, o.message_offset + 1)), v_position.leased_at, v_now,
                   f.attempts + 1, left(o.error, 2000)
            FROM unnest(v_offsets, v_outcomes, v_errors) AS o (message_offset, outcome, error)
            CROSS JOIN LATERAL (
                SELECT coalesce((v_position.attempts ->> o.message_offset::text)::int, 0) AS attempts) f
            WHERE o.outcome = 'failed' AND f.attempts < 20
            ON CONFLICT DO NOTHING;
        END IF;
        IF 'dead' = ANY (v_outcomes) THEN
            PERFORM move_to_dead_letters_v1(v_position.partition_id, v_position.group_id,
                            array_agg(o.message_offset), array_agg(o.error), v_now)
            FROM unnest(v_offsets, v_outcomes, v_errors) AS o (message_offset, outcome, error)
            WHERE o.outcome = 'dead';
        END IF;
        SELECT settle_position_v1(
            v_position.partition_id, v_position.group_id,
            coalesce(range_agg(int8range(o.message_offset, o.message_offset + 1))
                     FILTER (WHERE o.outcome IN ('completed', 'dead')), '{}'),
            coalesce(range_agg(int8range(o.message_offset, o.message_offset + 1))
                     FILTER (WHERE o.outcome IN ('failed', 'retry')), '{}'), v_now)
        INTO v_released
        FROM unnest(v_offsets, v_outcomes) AS o (message_offset, outcome);
        IF 'completed' = ANY (v_outcomes) THEN
            UPDATE tallies y SET completed = y.completed + cardinality(array_positions(v_outcomes, 'completed'))
            WHERE (y.queue_id, y.group_id, y.slot) = (v_position.queue_id, v_position.group_id, tally_slot_v1());
        END IF;

        RETURN QUERY
        SELECT array_agg(o.item), o.outcome, v_position.queue_id, v_position.queue, v_position.partition,
               v_position.group_name, v_released,
               (extract(epoch FROM v_now - v_position.leased_at) * 1000)::bigint
        FROM unnest(v_items, v_outcomes) AS o (item, outcome) GROUP BY o.outcome;
    END LOOP;
END $$;
