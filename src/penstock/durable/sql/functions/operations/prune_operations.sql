-- prune_operations_v1: delete up to p_limit operations that completed more than p_age_s seconds ago, the oldest first;
-- how many were deleted.
-- Locks: the rows that are deleted; skips locked ones.
-- Cost: follows p_limit.
CREATE OR REPLACE FUNCTION prune_operations_v1(p_age_s double precision, p_limit int) RETURNS bigint
LANGUAGE sql AS $$
    WITH old AS (
        SELECT o.id FROM operations o
        WHERE o.status = 'completed' AND o.finished_at < now() - p_age_s * interval '1 second'
        ORDER BY o.finished_at LIMIT p_limit FOR UPDATE SKIP LOCKED
    ), deleted AS (
        DELETE FROM operations o USING old WHERE o.id = old.id RETURNING 1
    )
    SELECT count(*) FROM deleted
$$;
