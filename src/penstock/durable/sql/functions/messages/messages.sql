-- messages_v1: list a page of the messages of queues, newest first within each partition, partitions by id.
-- p_partition_id restricts it to one partition. The status is that of the queue's group in p_group_ids: `pending`, `processing` (under a live
-- lease), `completed` or `dead_letter`; for a group that does not exist every message is pending. p_status filters by
-- pending, processing or completed; a page of completed messages includes dead ones.
-- The page ends with the segment in which its payloads exceed p_max_bytes. total counts all that match.
-- The page starts after p_skip messages, or below offset p_below of partition p_from. Deleted messages are left out.
-- Cost: follows partitions and the page: statuses are computed from positions by arithmetic, not by a search.
CREATE OR REPLACE FUNCTION messages_v1(
    p_queue_ids bigint[], p_group_ids bigint[], p_partition_id bigint, p_status text, p_from bigint, p_below bigint,
    p_skip bigint, p_limit int, p_max_bytes bigint, p_now timestamptz DEFAULT NULL
) RETURNS TABLE (queue_id bigint, partition_id bigint, partition text, message_offset bigint, message_id uuid, transaction_id text,
                 trace_id uuid, payload bytea, created_at timestamptz, status text, attempts int,
                 lease_expires_at timestamptz, total bigint)
LANGUAGE sql STABLE AS $$
    WITH deleted AS (
        SELECT d.partition_id, range_agg(int8range(d.message_offset, d.message_offset + 1)) AS offsets
        FROM partitions t JOIN deleted_messages d ON d.partition_id = t.id
        WHERE t.queue_id = ANY (p_queue_ids) GROUP BY d.partition_id
    ), partition_offsets AS (
        SELECT t.id, t.name, t.queue_id, q.group_id, p.attempts, p.lease_expires_at,
               int8multirange(int8range(t.low_offset, t.next_offset)) - coalesce(d.offsets, '{}') AS kept,
               coalesce(int8multirange(int8range(NULL, p.cursor)) + p.finished, '{}') AS finished,
               CASE WHEN p.lease_id IS NOT NULL AND p.lease_expires_at > coalesce(p_now, clock_timestamp())
                    THEN int8multirange(int8range(p.lease_from, p.lease_to)) - p.returned ELSE '{}' END AS leased
        FROM unnest(p_queue_ids, p_group_ids) AS q (id, group_id)
        JOIN partitions t ON t.queue_id = q.id
        LEFT JOIN positions p ON p.partition_id = t.id AND p.group_id = q.group_id
        LEFT JOIN deleted d ON d.partition_id = t.id
        WHERE t.id = coalesce(p_partition_id, t.id) AND t.id >= coalesce(p_from, t.id)
    ), matching AS MATERIALIZED (
        SELECT w.*, CASE p_status
                   WHEN 'pending' THEN w.kept - w.finished - w.leased
                   WHEN 'processing' THEN w.kept * w.leased - w.finished
                   WHEN 'completed' THEN w.kept * w.finished
                   ELSE w.kept END
               * CASE WHEN w.id = p_from THEN int8multirange(int8range(NULL, p_below))
                      ELSE int8multirange(int8range(NULL, NULL)) END AS offsets
        FROM partition_offsets w
    ), ranges AS (
        SELECT s.id, upper(r) AS hi, upper(r) - lower(r) AS size,
               sum(upper(r) - lower(r)) OVER (ORDER BY s.id, lower(r) DESC)::bigint AS running_total,
               sum(upper(r) - lower(r)) OVER ()::bigint AS total
        FROM matching s CROSS JOIN LATERAL unnest(s.offsets) r
    ), page AS MATERIALIZED (
        SELECT k.id, k.total, k.hi - greatest(p_skip - (k.running_total - k.size), 0) AS hi,
               k.hi - least(p_skip + p_limit - (k.running_total - k.size), k.size) AS lo
        FROM ranges k WHERE k.running_total > p_skip AND k.running_total - k.size < p_skip + p_limit
    ), segment_sizes AS (
        SELECT k.*, l.first_offset, l.last_offset, pg_column_size(l.payloads) AS bytes,
               sum(pg_column_size(l.payloads)) OVER (ORDER BY k.id, l.first_offset DESC) AS running_bytes
        FROM page k CROSS JOIN LATERAL segment_rows_v1(k.id, k.lo, k.hi) l
    ), page_messages AS (
        SELECT k.id, k.total, s.first_offset + n - 1 AS message_offset, s.message_ids[n] AS message_id,
               coalesce(s.transaction_ids[n], s.message_ids[n]::text) AS transaction_id, s.trace_ids[n] AS trace_id,
               s.payloads[n] AS payload, s.created_at
        FROM segment_sizes k
        CROSS JOIN LATERAL segments_v1(k.id, greatest(k.lo, k.first_offset), least(k.hi, k.last_offset + 1)) s
        CROSS JOIN LATERAL generate_subscripts(s.message_ids, 1) n
        WHERE k.running_bytes - k.bytes < p_max_bytes
    )
    SELECT s.queue_id, f.id, s.name, f.message_offset, f.message_id, f.transaction_id, f.trace_id, f.payload, f.created_at,
           CASE WHEN x.is_dead THEN 'dead_letter'
                WHEN s.finished @> f.message_offset THEN 'completed'
                WHEN s.leased @> f.message_offset THEN 'processing'
                ELSE 'pending' END,
           coalesce((s.attempts ->> f.message_offset::text)::int, 0),
           CASE WHEN NOT s.finished @> f.message_offset AND s.leased @> f.message_offset THEN s.lease_expires_at END,
           f.total
    FROM page_messages f
    JOIN matching s ON s.id = f.id
    CROSS JOIN LATERAL (SELECT EXISTS (
        SELECT 1 FROM dead_letters d WHERE d.partition_id = f.id AND d.group_id = s.group_id
        AND d.message_offset = f.message_offset) AS is_dead) x
    ORDER BY f.id, f.message_offset DESC
$$;
