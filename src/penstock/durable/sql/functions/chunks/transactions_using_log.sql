-- transactions_using_log_v1: list the other transactions that use the tables of the log now.
-- With p_snapshots also those that have a snapshot of this database and so could still read rows that were just moved.
-- Returns: virtual transaction ids, under which pg_locks lists a transaction until it ends.
CREATE OR REPLACE FUNCTION transactions_using_log_v1(p_snapshots boolean) RETURNS text[]
LANGUAGE sql AS $$
    SELECT array(
        SELECT l.virtualtransaction FROM pg_locks l
        WHERE l.locktype = 'relation' AND l.pid IS DISTINCT FROM pg_backend_pid()
          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
          AND l.relation IN ('partitions'::regclass, 'positions'::regclass, 'chunks'::regclass,
                             'log'::regclass, 'message_keys'::regclass, 'message_values'::regclass)
        UNION
        SELECT l.virtualtransaction FROM pg_stat_activity a
        JOIN pg_locks l ON l.pid = a.pid AND l.locktype = 'virtualxid' AND l.mode = 'ExclusiveLock'
        WHERE p_snapshots AND a.datname = current_database() AND a.pid <> pg_backend_pid()
          AND a.backend_xmin IS NOT NULL AND a.backend_type IS DISTINCT FROM 'autovacuum worker')
$$;
