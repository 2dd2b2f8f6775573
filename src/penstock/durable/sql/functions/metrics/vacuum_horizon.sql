-- vacuum_horizon_v1: list holders that have kept dead rows of this database from being removed for longer than
-- p_longer. Holders are sessions (by their transaction id or snapshot), prepared transactions, replication slots, and
-- standbys that report the snapshots of their queries. Oldest first.
-- xid_clock gives the duration: since the held transaction id was new, at the latest, and not longer than the
-- transaction runs. Without a recent reading of xid_clock it is the transaction's start, which a user without
-- pg_read_all_stats sees of its own sessions only.
CREATE OR REPLACE FUNCTION vacuum_horizon_v1(p_longer interval, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (kind text, name text, pid int, username text, application text, client text,
               held_since timestamptz, xmin_age bigint)
LANGUAGE sql STABLE AS $$
    WITH clock AS (
        SELECT coalesce(p_now, clock_timestamp()) AS now, max(x.read_at) AS last_reading,
               pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next_xid
        FROM xid_clock x
    ), holders AS (
        SELECT CASE WHEN a.backend_type = 'walsender' THEN 'standby'
                    WHEN a.state LIKE 'idle in transaction%' THEN 'idle in transaction'
                    ELSE 'transaction' END AS kind,
               a.pid::text AS name, a.pid, a.usename::text AS username, a.application_name AS application,
               host(a.client_addr) AS client,
               CASE WHEN a.backend_type IS DISTINCT FROM 'walsender' THEN a.xact_start END AS began_at,
               greatest(age(a.backend_xid), age(a.backend_xmin)) AS xmin_age
        FROM pg_stat_activity a
        WHERE (a.datname = current_database() OR a.backend_type = 'walsender')
          AND coalesce(a.backend_xid, a.backend_xmin) IS NOT NULL
          AND a.pid <> pg_backend_pid() AND a.backend_type IS DISTINCT FROM 'autovacuum worker'
        UNION ALL
        SELECT 'prepared transaction', x.gid, NULL, x.owner::text, NULL, NULL, x.prepared, age(x.transaction)
        FROM pg_prepared_xacts x WHERE x.database = current_database()
        UNION ALL
        SELECT 'replication slot', s.slot_name::text, s.active_pid, NULL, NULL, NULL, NULL,
               greatest(age(s.xmin), age(s.catalog_xmin))
        FROM pg_replication_slots s WHERE coalesce(s.xmin, s.catalog_xmin) IS NOT NULL
    ), dated AS (
        SELECT h.*, c.now, c.last_reading, (
                   SELECT x.read_at FROM xid_clock x WHERE x.next_xid::text::bigint > c.next_xid - h.xmin_age
                   ORDER BY x.read_at LIMIT 1) AS xid_new_at
        FROM holders h CROSS JOIN clock c
    ), held AS (
        SELECT d.*, CASE WHEN d.xid_new_at IS NOT NULL THEN greatest(d.began_at, d.xid_new_at)
                         WHEN d.last_reading > d.now - interval '5 minutes' THEN d.now
                         ELSE coalesce(d.began_at, d.now) END AS held_since
        FROM dated d
    )
    SELECT h.kind, h.name, h.pid, h.username, h.application, h.client, h.held_since, h.xmin_age::bigint
    FROM held h WHERE h.held_since <= h.now - p_longer ORDER BY h.held_since, h.xmin_age DESC
$$;
