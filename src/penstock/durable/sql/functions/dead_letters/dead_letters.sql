-- dead_letters_v1: list a page of an environment's dead letters, the latest first.
-- Filters: queue, group, partition, a time range, one error group, and a text in the error or in the payload. Encrypted
-- payloads do not match a text. p_before_at and p_before_id are the end of the previous page. A dead letter of a
-- deleted group has no group name.
-- With a text filter it scans at most p_scan_limit dead letters of each queue. A page whose payloads are larger than
-- p_max_bytes ends early, with at least one. In both cases it also returns a row without a message: the last dead letter
-- down to which all were scanned.
-- Cost: follows the number of queues, and the page or p_scan_limit.
CREATE OR REPLACE FUNCTION dead_letters_v1(
    p_organization text, p_project text, p_environment text, p_queue text, p_group text, p_partition text,
    p_from timestamptz, p_to timestamptz, p_error text, p_error_key uuid, p_payload text,
    p_before_at timestamptz, p_before_id bigint, p_scan_limit int, p_limit int, p_offset int, p_max_bytes bigint
) RETURNS TABLE (id bigint, queue text, partition_id bigint, partition text, group_name text, message_offset bigint,
                 message_id uuid, transaction_id text, trace_id uuid, payload bytea, error text, attempts int,
                 created_at timestamptz, failed_at timestamptz, error_key uuid, deaths int, earlier_attempts int,
                 first_created_at timestamptz, first_transaction_id text)
LANGUAGE sql STABLE AS $$
    WITH search AS MATERIALIZED (
        -- The page has dead letters before (end_at, end_id): the end of the range, or of the previous page if that is
        -- earlier. Ids begin at 1, so (p_to, 0) excludes p_to itself.
        SELECT coalesce(p_from, '-infinity') AS start,
               CASE WHEN continues THEN p_before_at ELSE coalesce(p_to, 'infinity') END AS end_at,
               CASE WHEN continues THEN p_before_id ELSE 0 END AS end_id,
               convert_to(p_payload, 'UTF8') AS payload, p_error IS NOT NULL OR p_payload IS NOT NULL AS has_text,
               CASE WHEN p_error IS NOT NULL OR p_payload IS NOT NULL THEN p_scan_limit
                    ELSE p_limit + p_offset END AS scan_limit
        FROM (SELECT p_before_at IS NOT NULL AND (p_to IS NULL OR p_before_at < p_to) AS continues) c
    ), queue_groups AS MATERIALIZED (
        SELECT q.id AS queue_id, q.name AS queue, g.id AS group_id, t.id AS partition_id
        FROM queues q
        LEFT JOIN groups g ON g.queue_id = q.id AND (g.name = p_group OR p_group IS NULL AND p_error_key IS NOT NULL)
        LEFT JOIN partitions t ON t.queue_id = q.id AND t.name = p_partition
        WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
          AND (p_queue IS NULL OR q.name = p_queue)
          AND (p_group IS NULL OR g.id IS NOT NULL) AND (p_partition IS NULL OR t.id IS NOT NULL)
    ), scanned AS MATERIALIZED (
        SELECT w.queue, w.queue_id AS scanned_queue_id, w.group_id AS scanned_group_id, d.*
        FROM queue_groups w CROSS JOIN search
        CROSS JOIN LATERAL (
            (SELECT * FROM dead_letters d
             WHERE p_group IS NULL AND p_error_key IS NULL AND d.queue_id = w.queue_id
               AND d.failed_at >= search.start AND (d.failed_at, d.id) < (search.end_at, search.end_id)
               AND d.partition_id = coalesce(w.partition_id, d.partition_id)
             ORDER BY d.failed_at DESC, d.id DESC LIMIT search.scan_limit)
            UNION ALL
            (SELECT * FROM dead_letters d
             WHERE p_group IS NOT NULL AND p_error_key IS NULL AND d.queue_id = w.queue_id AND d.group_id = w.group_id
               AND d.failed_at >= search.start AND (d.failed_at, d.id) < (search.end_at, search.end_id)
               AND d.partition_id = coalesce(w.partition_id, d.partition_id)
             ORDER BY d.failed_at DESC, d.id DESC LIMIT search.scan_limit)
            UNION ALL
            (SELECT * FROM dead_letters d
             WHERE p_error_key IS NOT NULL AND d.queue_id = w.queue_id AND d.group_id = w.group_id
               AND d.error_key = p_error_key
               AND d.failed_at >= search.start AND (d.failed_at, d.id) < (search.end_at, search.end_id)
               AND d.partition_id = coalesce(w.partition_id, d.partition_id)
             ORDER BY d.failed_at DESC, d.id DESC LIMIT search.scan_limit)
        ) d
    ), scan_end AS MATERIALIZED (
        -- If one queue was not scanned to its end, the page has no older dead letters of the other queues either.
        SELECT h.failed_at, h.id FROM search CROSS JOIN (
            SELECT DISTINCT ON (l.scanned_queue_id, l.scanned_group_id) l.failed_at, l.id,
                   count(*) OVER (PARTITION BY l.scanned_queue_id, l.scanned_group_id) AS scanned_count
            FROM scanned l ORDER BY l.scanned_queue_id, l.scanned_group_id, l.failed_at, l.id) h
        WHERE search.has_text AND h.scanned_count >= search.scan_limit
        ORDER BY h.failed_at DESC, h.id DESC LIMIT 1
    ), matching AS MATERIALIZED (
        SELECT l.* FROM scanned l CROSS JOIN search LEFT JOIN scan_end ON true
        WHERE (scan_end.id IS NULL OR (l.failed_at, l.id) >= (scan_end.failed_at, scan_end.id))
          AND (p_error IS NULL OR position(lower(p_error) IN lower(coalesce(l.error, ''))) > 0)
          AND (search.payload IS NULL OR length(l.payload) > 0 AND get_byte(l.payload, 0) <> 1
                                        AND position(search.payload IN plain_payload_v1(l.payload)) > 0)
        ORDER BY l.failed_at DESC, l.id DESC LIMIT p_limit OFFSET p_offset
    ), page AS MATERIALIZED (
        SELECT * FROM (
            SELECT m.*, row_number() OVER newest_first AS n, count(*) OVER () AS matching_count,
                   sum(octet_length(m.payload)) OVER newest_first AS running_bytes
            FROM matching m WINDOW newest_first AS (ORDER BY m.failed_at DESC, m.id DESC)
        ) m WHERE m.n = 1 OR m.running_bytes <= p_max_bytes
    ), page_end AS (
        SELECT p.failed_at, p.id FROM page p
        WHERE p.n = (SELECT count(*) FROM page) AND p.n < p.matching_count
        UNION ALL
        SELECT h.failed_at, h.id FROM scan_end h
        ORDER BY failed_at DESC, id DESC LIMIT 1
    )
    (SELECT d.id, d.queue, d.partition_id, t.name, g.name, d.message_offset, d.message_id, d.transaction_id,
            d.trace_id, d.payload, d.error, d.attempts, d.created_at, d.failed_at, d.error_key, d.deaths,
            d.earlier_attempts, d.first_created_at, d.first_transaction_id
     FROM page d
     LEFT JOIN partitions t ON t.id = d.partition_id
     LEFT JOIN groups g ON g.id = d.group_id
     ORDER BY d.failed_at DESC, d.id DESC)
    UNION ALL
    SELECT h.id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, h.failed_at, NULL, NULL, NULL,
           NULL, NULL
    FROM page_end h
$$;
