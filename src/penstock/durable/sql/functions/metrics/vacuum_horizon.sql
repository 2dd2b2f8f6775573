-- vacuum_horizon_v1: who keeps dead rows of this database from being removed, and has done so for longer than p_longer:
-- sessions by their transaction id or snapshot, prepared transactions, replication slots, standbys that report
-- what their queries see. Oldest first.
-- How long is told by xid_clock: since the transaction id that is held was new, at the latest, and not longer
-- than the transaction runs. Without a recent reading of that clock it is the transaction's start, which a user
-- without pg_read_all_stats sees of its own sessions only.
CREATE OR REPLACE FUNCTION vacuum_horizon_v1(p_longer interval, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (kind text, name text, pid int, username text, application text, client text,
               held_since timestamptz, xmin_age bigint)
LANGUAGE sql STABLE AS $$
    WITH clock AS (
        SELECT coalesce(p_now, clock_timestamp()) AS now, max(x.at) AS last_reading,
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
                   SELECT x.at FROM xid_clock x WHERE x.next_xid::text::bigint > c.next_xid - h.xmin_age
                   ORDER BY x.at LIMIT 1) AS new_at
        FROM holders h CROSS JOIN clock c
    ), judged AS (
        SELECT d.*, CASE WHEN d.new_at IS NOT NULL THEN greatest(d.began_at, d.new_at)
                         WHEN d.last_reading > d.now - interval '5 minutes' THEN d.now
                         ELSE coalesce(d.began_at, d.now) END AS held_since
        FROM dated d
    )
    SELECT j.kind, j.name, j.pid, j.username, j.application, j.client, j.held_since, j.xmin_age::bigint
    FROM judged j WHERE j.held_since <= j.now - p_longer ORDER BY j.held_since, j.xmin_age DESC
$$;
