-- take_job_v1: the oldest job that waits, or whose owner has not been heard of, leased to p_owner; no row if none.
CREATE OR REPLACE FUNCTION take_job_v1(p_owner uuid, p_lease_ms int, p_now timestamptz DEFAULT NULL)
RETURNS SETOF jobs
LANGUAGE sql AS $$
    UPDATE jobs j SET state = 'running', owner = p_owner, started_at = coalesce(j.started_at, m.now),
           lease_until = m.now + p_lease_ms * interval '1 millisecond'
    FROM (SELECT coalesce(p_now, clock_timestamp()) AS now) m
    WHERE j.id = (
        SELECT k.id FROM jobs k
        WHERE k.state IN ('waiting', 'running')
          AND (k.lease_until IS NULL OR k.lease_until < coalesce(p_now, clock_timestamp()))
        ORDER BY k.created_at LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING j.*
$$;
