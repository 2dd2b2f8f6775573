-- prune_notices_v1: delete notices older than p_days that are sent or failed and whose incident is resolved.
-- The notices of an open incident stay: they say which channels get its resolved notice.
-- Returns: how many were deleted.
-- Locks: the deleted notices.
CREATE OR REPLACE FUNCTION prune_notices_v1(p_days int, p_limit int, p_now timestamptz DEFAULT NULL)
RETURNS int
LANGUAGE sql AS $$
    WITH pruned AS (
        DELETE FROM alert_notices n
        WHERE n.id IN (
            SELECT o.id FROM alert_notices o
            LEFT JOIN alert_incidents i ON i.id = o.incident_id
            WHERE o.state <> 'pending' AND o.created_at < coalesce(p_now, clock_timestamp()) - p_days * interval '1 day'
              AND (o.incident_id IS NULL OR i.resolved_at IS NOT NULL)
            LIMIT p_limit FOR UPDATE OF o SKIP LOCKED)
        RETURNING 1)
    SELECT count(*)::int FROM pruned
$$;
