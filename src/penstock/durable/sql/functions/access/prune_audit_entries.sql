-- prune_audit_entries_v1: delete up to p_limit audit entries older than p_before, the oldest first.
-- The caller repeats it while it returns p_limit. The trigger of the table lets this function alone delete.
-- Returns: the number of entries deleted.
-- Locks: the deleted rows.
CREATE OR REPLACE FUNCTION prune_audit_entries_v1(p_before timestamptz, p_limit int) RETURNS bigint
LANGUAGE sql SET penstock.audit_retention = 'on' AS $$
    WITH deleted AS (
        DELETE FROM audit_entries a WHERE a.id IN (
            SELECT o.id FROM audit_entries o WHERE o.recorded_at < p_before ORDER BY o.recorded_at, o.id LIMIT p_limit
        ) RETURNING 1
    )
    SELECT count(*) FROM deleted
$$;
