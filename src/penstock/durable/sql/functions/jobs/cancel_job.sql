-- cancel_job_v1: cancel a job that waits or runs: no further chunk is started. A job that has ended stays as it is.
-- Locks: the job's row.
-- Cost: one row.
CREATE OR REPLACE FUNCTION cancel_job_v1(p_organization text, p_project text, p_environment text, p_id uuid) RETURNS void
LANGUAGE sql AS $$
    UPDATE jobs SET state = 'cancelled', finished_at = clock_timestamp()
    WHERE id = p_id AND state IN ('waiting', 'running')
      AND environment_id = environment_id_v1(p_organization, p_project, p_environment)
$$;
