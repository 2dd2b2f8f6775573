-- log_transactions_v1: the transactions, other than this one, that use the log's tables now; with p_snapshots also
-- those that hold a snapshot of this database and so could still read what was just moved.
-- Each is named by its virtual transaction id, under which pg_locks lists it until it ends.
CREATE OR REPLACE FUNCTION log_transactions_v1(p_snapshots boolean) RETURNS text[]
LANGUAGE sql AS $$
    SELECT array(
        SELECT l.virtualtransaction FROM pg_locks l
        WHERE l.locktype = 'relation' AND l.pid IS DISTINCT FROM pg_backend_pid()
          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
          AND l.relation IN ('partitions'::regclass, 'positions'::regclass, 'chunks'::regclass,
                             'log'::regclass, 'message_keys'::regclass)
        UNION
        SELECT l.virtualtransaction FROM pg_stat_activity a
        JOIN pg_locks l ON l.pid = a.pid AND l.locktype = 'virtualxid' AND l.mode = 'ExclusiveLock'
        WHERE p_snapshots AND a.datname = current_database() AND a.pid <> pg_backend_pid()
          AND a.backend_xmin IS NOT NULL AND a.backend_type IS DISTINCT FROM 'autovacuum worker')
$$;
