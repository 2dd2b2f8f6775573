-- prune_dead_letter_records_v1: delete finished jobs and recorded drifts that are older than p_days days, and the
-- counts of queues that were deleted.
-- Locks: the rows that are deleted.
-- Cost: follows jobs, drifts and counts; never dead letters.
CREATE OR REPLACE FUNCTION prune_dead_letter_records_v1(p_days int) RETURNS void
LANGUAGE sql AS $$
    WITH old_jobs AS (
        DELETE FROM jobs WHERE finished_at < clock_timestamp() - p_days * interval '1 day'
    ), old_drifts AS (
        DELETE FROM dead_drifts WHERE detected_at < clock_timestamp() - p_days * interval '1 day'
    ), deleted_queues AS MATERIALIZED (
        SELECT DISTINCT c.queue_id FROM dead_counts c
        WHERE NOT EXISTS (SELECT 1 FROM queues q WHERE q.id = c.queue_id)
    ), hours AS (
        DELETE FROM dead_hours h USING deleted_queues x WHERE h.queue_id = x.queue_id
    ), errors AS (
        DELETE FROM dead_error_counts e USING deleted_queues x WHERE e.queue_id = x.queue_id
    )
    DELETE FROM dead_counts c USING deleted_queues x WHERE c.queue_id = x.queue_id
$$;
