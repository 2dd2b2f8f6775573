-- kept_v1: the first offset each partition keeps at p_now by its queue's retention, never below what it keeps
-- already: nothing older than retention_ms, and nothing older than completed_retention_ms that every group has
-- finished. In a queue without a group nothing counts as finished; but what outlived its time to live would be
-- passed over by any group, and is not kept either. A partition whose queue keeps everything is left out.
CREATE OR REPLACE FUNCTION kept_v1(p_partition_ids bigint[], p_now timestamptz)
RETURNS TABLE (partition_id bigint, queue_id bigint, low_offset bigint, kept_from bigint)
LANGUAGE sql STABLE AS $$
    SELECT t.id, t.queue_id, t.low_offset, greatest(
               t.low_offset,
               CASE WHEN r.kept_ms IS NOT NULL
                    THEN offset_at_v1(t.id, p_now - r.kept_ms * interval '1 millisecond') END,
               CASE WHEN r.completed_ms IS NOT NULL
                    THEN least(offset_at_v1(t.id, p_now - r.completed_ms * interval '1 millisecond'), r.finished) END)
    FROM unnest(p_partition_ids) AS w (id)
    JOIN partitions t ON t.id = w.id
    JOIN queues q ON q.id = t.queue_id
    CROSS JOIN LATERAL (
        SELECT least(CASE WHEN q.retention_enabled THEN nullif(q.retention_ms, 0) END,
                     CASE WHEN min(p.cursor) IS NULL THEN nullif(q.ttl_ms, 0) END,
                     CASE WHEN min(p.cursor) IS NULL THEN nullif(q.max_wait_ms, 0) END) AS kept_ms,
               CASE WHEN q.retention_enabled AND min(p.cursor) > t.low_offset
                    THEN nullif(q.completed_retention_ms, 0) END AS completed_ms,
               min(p.cursor) AS finished
        FROM positions p WHERE p.partition_id = t.id
    ) r
$$;
