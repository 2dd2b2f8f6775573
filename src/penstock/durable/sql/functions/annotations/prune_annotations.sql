-- prune_annotations_v1: delete up to p_limit annotations that ended before p_before, the oldest first.
-- The caller repeats it while it returns p_limit.
-- Returns: the number of annotations deleted.
-- Locks: the deleted rows.
CREATE OR REPLACE FUNCTION prune_annotations_v1(p_before timestamptz, p_limit int) RETURNS bigint
LANGUAGE sql AS $$
    WITH deleted AS (
        DELETE FROM annotations a WHERE a.id IN (
            SELECT o.id FROM annotations o WHERE o.last_at < p_before ORDER BY o.last_at LIMIT p_limit
        ) RETURNING 1
    )
    SELECT count(*) FROM deleted
$$;
