-- fail_job_v1: end a running job that p_owner holds as failed, with the reason.
-- Locks: the job's row.
-- Cost: one row.
CREATE OR REPLACE FUNCTION fail_job_v1(p_id uuid, p_owner uuid, p_reason text) RETURNS void
LANGUAGE sql AS $$
    UPDATE jobs SET state = 'failed', note = p_reason, finished_at = clock_timestamp()
    WHERE id = p_id AND owner = p_owner AND state = 'running'
$$;
