-- is_reconciliation_due_v1: whether a reconciliation is unfinished, or the last one ended more than p_interval_s
-- seconds ago.
-- Locks: none.
-- Cost: follows the reconciliations of the last 31 days.
CREATE OR REPLACE FUNCTION is_reconciliation_due_v1(p_interval_s double precision)
RETURNS TABLE (is_due boolean)
LANGUAGE sql STABLE AS $$
    SELECT NOT EXISTS (SELECT 1 FROM reconciliations r
                       WHERE r.ended_at >= clock_timestamp() - p_interval_s * interval '1 second')
           OR EXISTS (SELECT 1 FROM reconciliations r WHERE r.ended_at IS NULL)
$$;
