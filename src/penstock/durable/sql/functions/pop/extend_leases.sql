-- extend_leases_v1: extend leases to at least p_ms from now; a lease never gets shorter.
-- Returns: the new end per lease, in the order of the arguments; NULL for a lease that is no longer in force.
-- Locks: position rows by partition and group.
CREATE OR REPLACE FUNCTION extend_leases_v1(
    p_group_ids bigint[], p_lease_ids uuid[], p_ms bigint[], p_now timestamptz DEFAULT NULL
) RETURNS timestamptz[]
LANGUAGE plpgsql AS $$
DECLARE
    v_now  timestamptz;
    v_ends timestamptz[];
BEGIN
    PERFORM 1 FROM positions p
    WHERE p.group_id = ANY (p_group_ids) AND p.lease_id = ANY (p_lease_ids)
      AND p.ready_at > coalesce(p_now, clock_timestamp())
      AND p.lease_expires_at > coalesce(p_now, clock_timestamp())
    ORDER BY p.partition_id, p.group_id FOR UPDATE;
    v_now := coalesce(p_now, clock_timestamp());
    WITH requested AS (
        SELECT r.group_id, r.lease_id, r.n, v_now + r.ms * interval '1 millisecond' AS expires_at
        FROM unnest(p_group_ids, p_lease_ids, p_ms) WITH ORDINALITY AS r (group_id, lease_id, ms, n)
    ), latest AS (
        SELECT r.group_id, r.lease_id, max(r.expires_at) AS expires_at FROM requested r GROUP BY r.group_id, r.lease_id
    ), extended AS (
        UPDATE positions p SET lease_expires_at = greatest(p.lease_expires_at, l.expires_at),
               ready_at = greatest(p.lease_expires_at, l.expires_at)
        FROM latest l
        WHERE p.group_id = l.group_id AND p.lease_id = l.lease_id AND p.ready_at > v_now
          AND p.lease_expires_at > v_now
        RETURNING p.group_id, p.lease_id, p.lease_expires_at
    )
    SELECT array_agg(e.expires_at ORDER BY r.n) INTO v_ends
    FROM requested r
    LEFT JOIN (SELECT x.group_id, x.lease_id, min(x.lease_expires_at) AS expires_at
               FROM extended x GROUP BY x.group_id, x.lease_id) e
           ON e.group_id = r.group_id AND e.lease_id = r.lease_id;
    RETURN v_ends;
END $$;
