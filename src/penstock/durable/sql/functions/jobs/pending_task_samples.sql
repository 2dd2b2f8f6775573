-- pending_task_samples_v1: the tasks of a job's sample that were not finished yet, and when each had died.
-- Locks: none.
-- Cost: follows the size of the sample.
CREATE OR REPLACE FUNCTION pending_task_samples_v1(p_id uuid)
RETURNS TABLE (task_id text, dead_ms bigint)
LANGUAGE sql STABLE AS $$
    SELECT s.item, s.dead_ms FROM job_samples s WHERE s.job_id = p_id AND s.outcome IS NULL ORDER BY s.item
$$;
