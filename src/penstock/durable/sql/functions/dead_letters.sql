-- dead_letters_v1: a page of an environment's dead letters, the latest first; of a queue, group or partition if
-- named, and of a span of time. A letter of a group that was deleted has no group name.
-- Cost follows the number of queues asked for and the page.
CREATE OR REPLACE FUNCTION dead_letters_v1(
    p_organization text, p_project text, p_environment text, p_queue text, p_group text, p_partition text,
    p_from timestamptz, p_to timestamptz, p_limit int, p_offset int
) RETURNS TABLE (id bigint, queue text, partition_id bigint, partition text, group_name text, message_offset bigint,
                 message_id uuid, transaction_id text, trace_id uuid, payload bytea, error text, attempts int,
                 created_at timestamptz, failed_at timestamptz)
LANGUAGE sql STABLE AS $$
    WITH places AS MATERIALIZED (
        SELECT q.id AS queue_id, q.name AS queue, g.id AS group_id, t.id AS partition_id
        FROM queues q
        LEFT JOIN groups g ON g.queue_id = q.id AND g.name = p_group
        LEFT JOIN partitions t ON t.queue_id = q.id AND t.name = p_partition
        WHERE q.environment_id = environment_v1(p_organization, p_project, p_environment)
          AND (p_queue IS NULL OR q.name = p_queue)
          AND (p_group IS NULL OR g.id IS NOT NULL) AND (p_partition IS NULL OR t.id IS NOT NULL)
    ), page AS MATERIALIZED (
        SELECT w.queue, d.*
        FROM places w
        CROSS JOIN LATERAL (
            (SELECT * FROM dead_letters d
             WHERE p_group IS NULL AND d.queue_id = w.queue_id
               AND d.failed_at >= coalesce(p_from, '-infinity') AND d.failed_at < coalesce(p_to, 'infinity')
               AND d.partition_id = coalesce(w.partition_id, d.partition_id)
             ORDER BY d.failed_at DESC, d.id DESC LIMIT p_limit + p_offset)
            UNION ALL
            (SELECT * FROM dead_letters d
             WHERE p_group IS NOT NULL AND d.queue_id = w.queue_id AND d.group_id = w.group_id
               AND d.failed_at >= coalesce(p_from, '-infinity') AND d.failed_at < coalesce(p_to, 'infinity')
               AND d.partition_id = coalesce(w.partition_id, d.partition_id)
             ORDER BY d.failed_at DESC, d.id DESC LIMIT p_limit + p_offset)
        ) d
        ORDER BY d.failed_at DESC, d.id DESC LIMIT p_limit OFFSET p_offset
    )
    SELECT d.id, d.queue, d.partition_id, t.name, g.name, d.message_offset, d.message_id, d.transaction_id,
           d.trace_id, d.payload, d.error, d.attempts, d.created_at, d.failed_at
    FROM page d
    LEFT JOIN partitions t ON t.id = d.partition_id
    LEFT JOIN groups g ON g.id = d.group_id
    ORDER BY d.failed_at DESC, d.id DESC
$$;

-- dead_total_v1: how many dead letters dead_letters_v1 has to page through. Of queues and groups the running count
-- is read; with other filters it counts, up to p_most.
CREATE OR REPLACE FUNCTION dead_total_v1(
    p_organization text, p_project text, p_environment text, p_queue text, p_group text, p_partition text,
    p_from timestamptz, p_to timestamptz, p_most int
) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_environment bigint := environment_v1(p_organization, p_project, p_environment);
BEGIN
    IF p_partition IS NULL AND p_from IS NULL AND p_to IS NULL THEN
        RETURN (
            SELECT coalesce(sum(y.messages), 0) FROM queues q
            JOIN dead_tallies y ON y.queue_id = q.id
            LEFT JOIN groups g ON g.queue_id = q.id AND g.name = p_group
            WHERE q.environment_id = v_environment AND (p_queue IS NULL OR q.name = p_queue)
              AND (p_group IS NULL OR y.group_id = g.id));
    END IF;
    RETURN (
        SELECT count(*) FROM (
            SELECT 1 FROM queues q
            JOIN dead_letters d ON d.queue_id = q.id
            LEFT JOIN groups g ON g.id = d.group_id
            LEFT JOIN partitions t ON t.id = d.partition_id
            WHERE q.environment_id = v_environment AND (p_queue IS NULL OR q.name = p_queue)
              AND (p_group IS NULL OR g.name = p_group) AND (p_partition IS NULL OR t.name = p_partition)
              AND d.failed_at >= coalesce(p_from, '-infinity') AND d.failed_at < coalesce(p_to, 'infinity')
            LIMIT p_most) c);
END $$;
