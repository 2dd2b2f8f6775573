-- expiring_messages_v1: count the unfinished messages of an environment that a time to live or retention will remove
-- within each of the times in p_within_s (seconds).
-- Returns: a row per queue with such an option, group and time, if messages will expire. A queue without a group has rows
-- with an empty group: all its messages.
-- Cost: follows the partitions with unfinished messages of such queues. One index probe each, and a binary search where
-- messages will expire; never a scan of messages.
CREATE OR REPLACE FUNCTION expiring_messages_v1(
    p_environment_id bigint, p_within_s double precision[], p_now timestamptz DEFAULT NULL
) RETURNS TABLE (queue text, group_name text, within_s double precision, messages bigint)
LANGUAGE sql STABLE AS $$
    WITH limited AS MATERIALIZED (
        SELECT q.id, q.name, coalesce(p_now, clock_timestamp()) - interval '1 millisecond' * least(
                   CASE WHEN q.retention_enabled THEN nullif(q.retention_ms, 0) END,
                   nullif(q.ttl_ms, 0), nullif(q.max_wait_ms, 0)) AS expired_before
        FROM queues q
        WHERE q.environment_id = p_environment_id
          AND (q.retention_enabled AND q.retention_ms > 0 OR q.ttl_ms > 0 OR q.max_wait_ms > 0)
    ), unfinished AS (
        SELECT q.name, g.name AS group_name, q.expired_before, p.partition_id,
               greatest(p.cursor, t.low_offset) AS first_offset, p.finished
        FROM limited q
        JOIN groups g ON g.queue_id = q.id
        JOIN positions p ON p.group_id = g.id AND p.ready_at IS NOT NULL
        JOIN partitions t ON t.id = p.partition_id
        WHERE greatest(p.cursor, t.low_offset) < t.next_offset
        UNION ALL
        SELECT q.name, '', q.expired_before, t.id, t.low_offset, '{}'
        FROM limited q
        JOIN partitions t ON t.queue_id = q.id
        WHERE t.low_offset < t.next_offset AND NOT EXISTS (SELECT FROM groups g WHERE g.queue_id = q.id)
    )
    SELECT u.name, u.group_name, w.seconds, sum(e.messages)::bigint
    FROM unfinished u
    CROSS JOIN unnest(p_within_s) AS w (seconds)
    CROSS JOIN LATERAL (SELECT u.expired_before + w.seconds * interval '1 second' AS pushed_before) b
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(upper(r) - lower(r)), 0) AS messages
        FROM unnest(int8multirange(int8range(u.first_offset, offset_at_time_v1(u.partition_id, b.pushed_before)))
                    - u.finished) r
    ) e
    WHERE message_created_at_v1(u.partition_id, u.first_offset) < b.pushed_before
    GROUP BY u.name, u.group_name, w.seconds HAVING sum(e.messages) > 0
$$;
