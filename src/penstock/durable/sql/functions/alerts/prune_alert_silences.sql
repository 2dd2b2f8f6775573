-- prune_alert_silences_v1: delete silences that ended more than p_days ago.
-- Returns: how many were deleted, at most p_limit.
-- Locks: the deleted silences.
CREATE OR REPLACE FUNCTION prune_alert_silences_v1(p_days double precision, p_limit int) RETURNS int
LANGUAGE sql AS $$
    WITH pruned AS (
        DELETE FROM alert_silences s
        WHERE s.id IN (
            SELECT o.id FROM alert_silences o
            WHERE o.ends_at < clock_timestamp() - p_days * interval '1 day'
            LIMIT p_limit FOR UPDATE SKIP LOCKED)
        RETURNING 1)
    SELECT count(*)::int FROM pruned
$$;
