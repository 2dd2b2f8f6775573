-- renew_job_lease_v1: extend the lease of a running job that p_owner holds; whether it does.
-- Locks: the job's row.
-- Cost: one row.
CREATE OR REPLACE FUNCTION renew_job_lease_v1(p_id uuid, p_owner uuid, p_lease_ms int) RETURNS boolean
LANGUAGE sql AS $$
    WITH renewed AS (
        UPDATE jobs SET lease_expires_at = clock_timestamp() + p_lease_ms * interval '1 millisecond'
        WHERE id = p_id AND owner = p_owner AND state = 'running' RETURNING id
    )
    SELECT EXISTS (SELECT 1 FROM renewed)
$$;
