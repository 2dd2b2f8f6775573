-- prune_alert_incidents_v1: delete incidents that were resolved more than p_days ago, with their queues, notes and notices.
-- Returns: how many were deleted, at most p_limit.
-- Locks: the deleted incidents.
CREATE OR REPLACE FUNCTION prune_alert_incidents_v1(p_days double precision, p_limit int) RETURNS int
LANGUAGE sql AS $$
    WITH pruned AS (
        DELETE FROM alert_incidents i
        WHERE i.id IN (
            SELECT o.id FROM alert_incidents o
            WHERE o.resolved_at < clock_timestamp() - p_days * interval '1 day'
            LIMIT p_limit FOR UPDATE SKIP LOCKED)
        RETURNING 1)
    SELECT count(*)::int FROM pruned
$$;
