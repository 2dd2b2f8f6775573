-- extend_leases_v1: let leases run until at least p_ms from now; they never get shorter.
-- Returns the new end per lease, in the order given; NULL for one that is not in force any more.
-- Locks: position rows by partition.
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
    WITH wanted AS (
        SELECT w.group_id, w.lease_id, w.n, v_now + w.ms * interval '1 millisecond' AS until
        FROM unnest(p_group_ids, p_lease_ids, p_ms) WITH ORDINALITY AS w (group_id, lease_id, ms, n)
    ), longest AS (
        SELECT w.group_id, w.lease_id, max(w.until) AS until FROM wanted w GROUP BY w.group_id, w.lease_id
    ), extended AS (
        UPDATE positions p SET lease_expires_at = greatest(p.lease_expires_at, l.until),
               ready_at = greatest(p.lease_expires_at, l.until)
        FROM longest l
        WHERE p.group_id = l.group_id AND p.lease_id = l.lease_id AND p.ready_at > v_now
          AND p.lease_expires_at > v_now
        RETURNING p.group_id, p.lease_id, p.lease_expires_at
    )
    SELECT array_agg(e.until ORDER BY w.n) INTO v_ends
    FROM wanted w
    LEFT JOIN (SELECT x.group_id, x.lease_id, min(x.lease_expires_at) AS until
               FROM extended x GROUP BY x.group_id, x.lease_id) e
           ON e.group_id = w.group_id AND e.lease_id = w.lease_id;
    RETURN v_ends;
END $$;
