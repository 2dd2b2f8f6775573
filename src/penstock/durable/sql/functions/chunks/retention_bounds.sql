-- retention_bounds_v1: compute the first offsets that partitions keep at p_now by the age of their messages.
-- A queue without a group has no finished messages; but any group would skip messages past their time to live, so these
-- are not kept either.
-- Returns: `kept_from` for all messages, `finished_kept_from` for those that every group has finished; NULL if the
-- queue has no such limit, or no message past it.
CREATE OR REPLACE FUNCTION retention_bounds_v1(p_partition_ids bigint[], p_now timestamptz)
RETURNS TABLE (partition_id bigint, low_offset bigint, kept_from bigint, finished_kept_from bigint)
LANGUAGE sql STABLE AS $$
    SELECT t.id, t.low_offset,
           CASE WHEN r.oldest_at < p_now - r.retention_ms * interval '1 millisecond'
                THEN offset_at_time_v1(t.id, p_now - r.retention_ms * interval '1 millisecond') END,
           CASE WHEN r.oldest_at < p_now - r.finished_retention_ms * interval '1 millisecond'
                THEN offset_at_time_v1(t.id, p_now - r.finished_retention_ms * interval '1 millisecond') END
    FROM unnest(p_partition_ids) AS w (id)
    JOIN partitions t ON t.id = w.id
    JOIN queues q ON q.id = t.queue_id
    CROSS JOIN LATERAL (
        SELECT least(CASE WHEN q.retention_enabled THEN nullif(q.retention_ms, 0) END,
                     CASE WHEN min(p.cursor) IS NULL THEN nullif(q.ttl_ms, 0) END,
                     CASE WHEN min(p.cursor) IS NULL THEN nullif(q.max_wait_ms, 0) END) AS retention_ms,
               CASE WHEN q.retention_enabled AND min(p.cursor) > t.low_offset
                    THEN nullif(q.completed_retention_ms, 0) END AS finished_retention_ms,
               coalesce(message_created_at_v1(t.id, t.low_offset), '-infinity') AS oldest_at
        FROM positions p WHERE p.partition_id = t.id
    ) r
$$;
