-- latest_reconciliation_v1: the last reconciliation that ended; no row before the first.
-- Locks: none.
-- Cost: one index lookup.
CREATE OR REPLACE FUNCTION latest_reconciliation_v1()
RETURNS TABLE (began_at timestamptz, ended_at timestamptz, queues bigint, partitions bigint, positions bigint,
               drift bigint, orphans bigint, findings jsonb)
LANGUAGE sql STABLE AS $$
    SELECT r.began_at, r.ended_at, r.queues, r.partitions, r.positions, r.drift, r.orphans, r.findings
    FROM reconciliations r WHERE r.ended_at IS NOT NULL ORDER BY r.id DESC LIMIT 1
$$;
