-- lease_job_v1: lease to p_owner the oldest job that waits or whose lease has expired.
-- Returns: the job; no row if there is none.
-- Locks: the job SKIP LOCKED.
CREATE OR REPLACE FUNCTION lease_job_v1(p_owner uuid, p_lease_ms int, p_now timestamptz DEFAULT NULL)
RETURNS SETOF jobs
LANGUAGE sql AS $$
    UPDATE jobs j SET state = 'running', owner = p_owner, started_at = coalesce(j.started_at, m.now),
           lease_expires_at = m.now + p_lease_ms * interval '1 millisecond'
    FROM (SELECT coalesce(p_now, clock_timestamp()) AS now) m
    WHERE j.id = (
        SELECT k.id FROM jobs k
        WHERE k.state IN ('waiting', 'running')
          AND (k.lease_expires_at IS NULL OR k.lease_expires_at < coalesce(p_now, clock_timestamp()))
        ORDER BY k.created_at LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING j.*
$$;
