-- create_waiting_task_job_v1: record a job that deletes tasks of a run queue (`purge`) or declares them dead
-- (`dead_letter`). The tasks are in Redis; the job's progress is here. Returns the job.
-- Raises: PK006 the environment does not exist.
-- Locks: the new row.
-- Cost: one row.
CREATE OR REPLACE FUNCTION create_waiting_task_job_v1(
    p_organization text, p_project text, p_environment text, p_id uuid, p_kind text, p_queue text, p_task_state text,
    p_from timestamptz, p_before timestamptz, p_payload text, p_reason text, p_rate int, p_created_by text,
    p_total bigint, p_total_is_exact boolean
) RETURNS SETOF jobs
LANGUAGE sql AS $$
    INSERT INTO jobs (id, environment_id, subject, kind, queue, task_state, failed_from, failed_before, payload, reason,
                      run_queue, rate, created_by, total, total_is_exact)
    VALUES (p_id, require_environment_v1(p_organization, p_project, p_environment), 'tasks', p_kind, p_queue,
            p_task_state, p_from, least(p_before, clock_timestamp()), p_payload, p_reason, true, p_rate, p_created_by,
            p_total, p_total_is_exact)
    RETURNING *
$$;
