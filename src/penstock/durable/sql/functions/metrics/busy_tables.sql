-- busy_tables_v1: the size of busy tables, and the oldest transaction whose dead rows vacuum cannot remove.
-- Returns: per table its bytes without indexes, and `horizon_xid`, the id of that transaction; the next id if vacuum may
-- remove all dead rows. A logical slot's catalog_xmin does not count: it keeps rows of system tables only.
-- Locks: none.
-- Cost: follows the sessions of the server, and one look at each file.
CREATE OR REPLACE FUNCTION busy_tables_v1(p_names text[])
RETURNS TABLE (name text, bytes bigint, horizon_xid bigint)
LANGUAGE sql AS $$
    SELECT n.name, pg_relation_size(to_regclass(n.name)), h.horizon_xid
    FROM unnest(p_names) AS n (name)
    CROSS JOIN (
        SELECT coalesce((
            SELECT held.xmin::text::bigint
            FROM (
                SELECT x.xmin FROM pg_stat_activity a
                CROSS JOIN LATERAL (VALUES (a.backend_xid), (a.backend_xmin)) AS x (xmin)
                WHERE (a.datname = current_database() OR a.backend_type = 'walsender')
                  AND a.pid <> pg_backend_pid() AND a.backend_type IS DISTINCT FROM 'autovacuum worker'
                UNION ALL
                SELECT p.transaction FROM pg_prepared_xacts p WHERE p.database = current_database()
                UNION ALL
                SELECT s.xmin FROM pg_replication_slots s
            ) held
            WHERE held.xmin IS NOT NULL ORDER BY age(held.xmin) DESC LIMIT 1
        ), pg_snapshot_xmax(pg_current_snapshot())::text::bigint) AS horizon_xid
    ) h
$$;
