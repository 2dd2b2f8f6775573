-- drop_chunk_v1: drop one table of a doomed chunk.
-- Drops the indexed values, then the keys, because a key without its message would refuse a push as a duplicate; then
-- the log, with all other records of the chunk. Call it until it returns NULL, each time in a transaction of its own,
-- so that it never holds one of the locks while it waits for another.
-- Returns: the table; NULL if there is nothing to drop or a transaction may still need it.
-- Raises: 55P03 when it cannot get the lock within 50 ms.
-- Locks: ACCESS EXCLUSIVE on `message_values`, `message_keys` or `log`, for the duration of one commit. Pushes, pops and
-- acks queue behind the request, so it gives up after 50 ms, and does not try while a transaction older than a second
-- uses the table.
CREATE OR REPLACE FUNCTION drop_chunk_v1(p_chunk int) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '50ms' AS $$
DECLARE
    v_table text;
BEGIN
    LOCK TABLE chunk_stages IN SHARE ROW EXCLUSIVE MODE;
    PERFORM 1 FROM chunk_stages
    WHERE chunk = p_chunk AND stage = 'doomed' AND transactions_ended_v1(blocking_transactions);
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    v_table := CASE WHEN to_regclass('message_values_' || p_chunk) IS NOT NULL THEN 'message_values'
                    WHEN to_regclass('message_keys_' || p_chunk) IS NOT NULL THEN 'message_keys' ELSE 'log' END;
    PERFORM 1 FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'relation' AND l.relation = v_table::regclass AND l.granted
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
      AND a.pid <> pg_backend_pid() AND a.xact_start < clock_timestamp() - interval '1 second';
    IF FOUND THEN
        RETURN NULL;
    END IF;
    IF v_table = 'log' THEN
        DELETE FROM chunks WHERE id = p_chunk;
        DELETE FROM chunk_stages WHERE chunk = p_chunk;
        DELETE FROM spans WHERE chunk = p_chunk;
    END IF;
    EXECUTE format('DROP TABLE %I', v_table || '_' || p_chunk);
    RETURN v_table || '_' || p_chunk;
END $$;
