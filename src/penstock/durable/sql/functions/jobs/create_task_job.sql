-- create_task_job_v1: record a job on the dead tasks of a run queue. The tasks are in Redis; the job's progress is
-- here. Returns the job.
-- Raises: PK006 the environment does not exist.
-- Locks: the new rows.
-- Cost: one row.
CREATE OR REPLACE FUNCTION create_task_job_v1(
    p_organization text, p_project text, p_environment text, p_id uuid, p_kind text, p_queue text, p_from timestamptz,
    p_before timestamptz, p_error text, p_error_key uuid, p_payload text, p_task_ids text[], p_rate int,
    p_sample_size int, p_sample_share double precision, p_sample_timeout_s int, p_created_by text,
    p_total bigint, p_total_is_exact boolean
) RETURNS SETOF jobs
LANGUAGE sql AS $$
    INSERT INTO jobs (id, environment_id, kind, queue, failed_from, failed_before, error, error_key, payload,
                      run_queue, task_ids, rate, sample_size, sample_share, sample_timeout_s, created_by, total,
                      total_is_exact)
    VALUES (p_id, require_environment_v1(p_organization, p_project, p_environment), p_kind, p_queue, p_from,
            least(p_before, clock_timestamp()), p_error, p_error_key, p_payload, true,
            p_task_ids, p_rate, p_sample_size, p_sample_share, p_sample_timeout_s, p_created_by, p_total,
            p_total_is_exact)
    RETURNING *
$$;
