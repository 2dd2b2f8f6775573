-- advance_task_job_v1: add the progress of one chunk to a job on tasks. With p_ended a running job becomes done; a
-- cancelled one stays cancelled. Returns the job afterwards.
-- Locks: the job's row.
-- Cost: one row.
CREATE OR REPLACE FUNCTION advance_task_job_v1(
    p_id uuid, p_scanned int, p_changed int, p_skipped int, p_task_cursor text, p_ended boolean
) RETURNS SETOF jobs
LANGUAGE sql AS $$
    UPDATE jobs SET scanned = scanned + p_scanned, changed = changed + p_changed, skipped = skipped + p_skipped,
           task_cursor = p_task_cursor,
           state = CASE WHEN p_ended AND state = 'running' THEN 'done' ELSE state END,
           finished_at = CASE WHEN p_ended THEN coalesce(finished_at, clock_timestamp()) ELSE finished_at END
    WHERE id = p_id RETURNING *
$$;
