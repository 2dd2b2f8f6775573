-- add_task_samples_v1: add dead tasks to the sample of a job, before they are requeued, and move the job's cursor after
-- them. A process that dies in between leaves their ids, and the next one requeues them. With p_ended or a complete
-- sample the job waits for the outcomes.
-- Returns: the job afterwards.
-- Locks: the job's row.
-- Cost: follows the number of tasks.
CREATE OR REPLACE FUNCTION add_task_samples_v1(
    p_id uuid, p_task_ids text[], p_dead_ms bigint[], p_scanned int, p_task_cursor text, p_ended boolean
) RETURNS jobs
LANGUAGE plpgsql AS $$
DECLARE
    v_job   jobs;
    v_added int;
BEGIN
    SELECT j.* INTO v_job FROM jobs j WHERE j.id = p_id FOR UPDATE;
    INSERT INTO job_samples (job_id, item, dead_ms)
    SELECT p_id, t.id, t.dead_ms FROM unnest(p_task_ids, p_dead_ms) AS t (id, dead_ms) ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS v_added = ROW_COUNT;
    UPDATE jobs j SET scanned = j.scanned + p_scanned, task_cursor = p_task_cursor, sample_taken = j.sample_taken + v_added
    WHERE j.id = p_id RETURNING j.* INTO v_job;
    IF v_job.sample_taken = 0 AND p_ended THEN
        UPDATE jobs j SET state = 'done', sample_passed = true, finished_at = clock_timestamp()
        WHERE j.id = p_id AND j.state = 'running' RETURNING j.* INTO v_job;
    ELSIF p_ended OR v_job.sample_taken >= v_job.sample_size THEN
        UPDATE jobs j SET sample_ends_at = clock_timestamp() + j.sample_timeout_s * interval '1 second'
        WHERE j.id = p_id RETURNING j.* INTO v_job;
    END IF;
    RETURN v_job;
END $$;
