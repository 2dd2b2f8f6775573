-- record_task_outcomes_v1: record what became of tasks of a job's sample, and how many of them were requeued now; then
-- decide the sample, unless the job was cancelled.
-- Returns: the job afterwards.
-- Locks: the job's row and the sample's rows.
-- Cost: follows the number of tasks.
CREATE OR REPLACE FUNCTION record_task_outcomes_v1(
    p_id uuid, p_task_ids text[], p_outcomes text[], p_errors text[], p_requeued int, p_lease_ms int
) RETURNS jobs
LANGUAGE plpgsql AS $$
DECLARE
    v_job jobs;
BEGIN
    UPDATE jobs j SET changed = j.changed + p_requeued WHERE j.id = p_id RETURNING j.* INTO v_job;
    UPDATE job_samples s SET outcome = t.outcome, error = t.error
    FROM unnest(p_task_ids, p_outcomes, p_errors) AS t (id, outcome, error)
    WHERE s.job_id = p_id AND s.item = t.id;
    IF v_job.state <> 'running' THEN
        RETURN v_job;
    END IF;
    RETURN decide_sample_v1(p_id, clock_timestamp(), p_lease_ms);
END $$;
