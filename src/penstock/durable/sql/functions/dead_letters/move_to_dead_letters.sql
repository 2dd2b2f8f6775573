-- move_to_dead_letters_v1: write dead letters for offsets of a partition and one group; the caller then finishes them.
-- A requeued message keeps its lineage: when it was first pushed, and how often it has died. A queue that keeps no dead
-- letters gets none. A repeated call writes a dead letter only once. Runs under the caller's lock on the position.
CREATE OR REPLACE FUNCTION move_to_dead_letters_v1(
    p_partition_id bigint, p_group_id bigint, p_offsets bigint[], p_errors text[], p_now timestamptz
) RETURNS void
LANGUAGE sql AS $$
    SELECT lock_tallies_v1(ARRAY[p_partition_id], ARRAY[p_group_id]);
    WITH error_keys AS MATERIALIZED (   -- computed once per distinct error
        SELECT k.error, md5(error_pattern_v1(k.error))::uuid AS error_key
        FROM (SELECT DISTINCT coalesce(u.error, '') AS error FROM unnest(p_errors) AS u (error)) k
    )
    INSERT INTO dead_letters (queue_id, partition_id, group_id, message_offset, message_id, transaction_id,
                              trace_id, payload, error, error_key, attempts, created_at, failed_at,
                              deaths, earlier_attempts, first_created_at, first_transaction_id)
    SELECT t.queue_id, p_partition_id, p_group_id, d.message_offset, s.message_ids[1],
           coalesce(s.transaction_ids[1], s.message_ids[1]::text), s.trace_ids[1], s.payloads[1], d.error,
           n.error_key,
           coalesce((p.attempts ->> d.message_offset::text)::int, 0) + 1, s.created_at, p_now,
           coalesce(l.deaths, 0) + 1, coalesce(l.attempts, 0), l.first_created_at, l.first_transaction_id
    FROM unnest(p_offsets, p_errors) AS d (message_offset, error)
    JOIN error_keys n ON n.error = coalesce(d.error, '')
    JOIN partitions t ON t.id = p_partition_id
    JOIN queues q ON q.id = t.queue_id AND q.keep_dead
    JOIN positions p ON p.partition_id = p_partition_id AND p.group_id = p_group_id
    CROSS JOIN LATERAL segments_v1(p_partition_id, d.message_offset, d.message_offset + 1) s
    LEFT JOIN lineages l ON l.partition_id = p_partition_id AND l.message_offset = d.message_offset
    ORDER BY d.message_offset
    ON CONFLICT (partition_id, group_id, message_offset) DO NOTHING;
$$;
