-- search_messages_v1: read ranges of offsets and return the messages that match, at most p_limit.
-- The ranges are read in their order, the newest messages of each first. p_group_ids has the group whose state counts.
-- A filter that is NULL matches every message. p_texts: the payload contains one of these texts, written in lower case;
-- letters a to z match in either case. An encrypted payload matches any text: the caller decrypts and compares it.
-- Reading ends after the segment in which payloads exceed p_max_bytes.
-- Returns: the matches; on every row whether all ranges were read, and if not, where reading stopped. Without a match
-- it is one row.
-- Cost: one index scan per range, then the rows of the ranges. Payloads are read if a filter needs them.
CREATE OR REPLACE FUNCTION search_messages_v1(
    p_partition_ids bigint[], p_group_ids bigint[], p_from bigint[], p_to bigint[], p_message_id uuid,
    p_transaction_id text, p_texts text[], p_key text, p_value text, p_status text, p_start timestamptz,
    p_end timestamptz, p_max_bytes bigint, p_limit int
) RETURNS TABLE (is_complete boolean, stop_partition_id bigint, stop_offset bigint, queue_id bigint,
                 partition_id bigint, partition text, message_offset bigint, message_id uuid, transaction_id text, trace_id uuid,
                 payload bytea, created_at timestamptz, status text, attempts int, lease_expires_at timestamptz)
LANGUAGE sql STABLE AS $$
    WITH segments AS MATERIALIZED (
        SELECT r.n, r.partition_id, r.group_id, r.lo, r.hi, l.first_offset, l.created_at, l.message_ids,
               l.transaction_ids, l.trace_ids, l.payloads,
               sum(pg_column_size(l.payloads)) OVER (ORDER BY r.n, l.first_offset DESC)
               - pg_column_size(l.payloads) < p_max_bytes AS is_read
        FROM unnest(p_partition_ids, p_group_ids, p_from, p_to) WITH ORDINALITY AS r (partition_id, group_id, lo, hi, n)
        CROSS JOIN LATERAL segment_rows_v1(r.partition_id, r.lo, r.hi) l
    ), stop AS (
        SELECT s.partition_id, greatest(s.first_offset, s.lo) AS stop_offset,
               NOT EXISTS (SELECT 1 FROM segments u WHERE NOT u.is_read) AS is_complete
        FROM segments s WHERE s.is_read ORDER BY s.n DESC, s.first_offset LIMIT 1
    ), messages AS (
        SELECT s.n, s.partition_id, s.group_id, s.first_offset + m.i - 1 AS message_offset, m.message_id,
               coalesce(m.transaction_id, m.message_id::text) AS transaction_id, m.trace_id, m.payload, s.created_at
        FROM segments s
        CROSS JOIN LATERAL unnest(s.message_ids, s.transaction_ids, s.trace_ids, s.payloads) WITH ORDINALITY
                   AS m (message_id, transaction_id, trace_id, payload, i)
        WHERE s.is_read AND (p_message_id IS NULL OR p_message_id = ANY (s.message_ids))
          AND (p_start IS NULL OR s.created_at >= p_start) AND (p_end IS NULL OR s.created_at < p_end)
          AND s.first_offset + m.i - 1 >= s.lo AND s.first_offset + m.i - 1 < s.hi
          AND (p_message_id IS NULL OR m.message_id = p_message_id)
          AND (p_transaction_id IS NULL OR coalesce(m.transaction_id, m.message_id::text) = p_transaction_id)
          AND (p_texts IS NULL OR substr(m.payload, 1, 1) = '\x01' OR EXISTS (
                  SELECT 1 FROM unnest(p_texts) x
                  WHERE strpos(lower(convert_from(plain_payload_v1(m.payload), 'UTF8') COLLATE "C"), x) > 0))
          AND (p_key IS NULL OR EXISTS (
                  SELECT 1 FROM index_values_v1(m.payload, ARRAY[p_key]) v WHERE v.value = p_value))
    ), matches AS (
        SELECT m.*, t.queue_id, t.name AS partition, x.status,
               coalesce((p.attempts ->> m.message_offset::text)::int, 0) AS attempts,
               CASE WHEN x.status = 'processing' THEN p.lease_expires_at END AS lease_expires_at
        FROM messages m
        JOIN partitions t ON t.id = m.partition_id AND t.low_offset <= m.message_offset
        LEFT JOIN positions p ON p.partition_id = m.partition_id AND p.group_id = m.group_id
        CROSS JOIN LATERAL (
            SELECT CASE WHEN EXISTS (SELECT 1 FROM dead_letters d
                                     WHERE d.partition_id = m.partition_id AND d.group_id = m.group_id
                                       AND d.message_offset = m.message_offset) THEN 'dead_letter'
                        WHEN p.cursor > m.message_offset OR p.finished @> m.message_offset THEN 'completed'
                        WHEN p.lease_id IS NOT NULL AND p.lease_expires_at > clock_timestamp()
                             AND m.message_offset >= p.lease_from AND m.message_offset < p.lease_to
                             AND NOT p.returned @> m.message_offset THEN 'processing'
                        ELSE 'pending' END AS status) x
        WHERE x.status = coalesce(p_status, x.status)
          AND NOT EXISTS (SELECT 1 FROM deleted_messages d
                          WHERE d.partition_id = m.partition_id AND d.message_offset = m.message_offset)
        ORDER BY m.n, m.message_offset DESC LIMIT p_limit
    )
    SELECT coalesce((SELECT s.is_complete FROM stop s), true), (SELECT s.partition_id FROM stop s),
           (SELECT s.stop_offset FROM stop s), m.queue_id, m.partition_id, m.partition, m.message_offset, m.message_id,
           m.transaction_id, m.trace_id, m.payload, m.created_at, m.status, m.attempts, m.lease_expires_at
    FROM (SELECT 1) one LEFT JOIN matches m ON true
    ORDER BY m.n, m.message_offset DESC
$$;
