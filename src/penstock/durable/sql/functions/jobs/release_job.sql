-- release_job_v1: end the lease of a running job that p_owner holds, so that another process continues it at once.
-- Locks: the job's row.
-- Cost: one row.
CREATE OR REPLACE FUNCTION release_job_v1(p_id uuid, p_owner uuid) RETURNS void
LANGUAGE sql AS $$
    UPDATE jobs SET lease_expires_at = NULL WHERE id = p_id AND owner = p_owner AND state = 'running'
$$;
