-- drop_chunk_v1: drop one table of a doomed chunk: its keys first, because a key without its message would
-- refuse a push for nothing; then the log, and with it every trace of the chunk.
-- Returns the table, NULL if there is nothing to drop or somebody may still need it; call it until then, each
-- time in a transaction of its own, so that it never holds the one lock while it waits for the other.
-- Locks: ACCESS EXCLUSIVE on `message_keys` or `log`, for as long as one commit takes. Pushes, pops and acks
-- queue behind the request, so it gives up after 50 ms, and does not try while a transaction that is older
-- than a second uses the table.
-- Raises: 55P03 when it gives up.
CREATE OR REPLACE FUNCTION drop_chunk_v1(p_chunk int) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '50ms' AS $$
DECLARE
    v_part text;
BEGIN
    LOCK TABLE chunk_stages IN SHARE ROW EXCLUSIVE MODE;
    PERFORM 1 FROM chunk_stages WHERE chunk = p_chunk AND stage = 'doomed' AND transactions_ended_v1(waits_for);
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    v_part := CASE WHEN to_regclass('message_keys_' || p_chunk) IS NULL THEN 'log' ELSE 'message_keys' END;
    PERFORM 1 FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'relation' AND l.relation = v_part::regclass AND l.granted
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
      AND a.pid <> pg_backend_pid() AND a.xact_start < clock_timestamp() - interval '1 second';
    IF FOUND THEN
        RETURN NULL;
    END IF;
    IF v_part = 'log' THEN
        DELETE FROM chunks WHERE id = p_chunk;
        DELETE FROM chunk_stages WHERE chunk = p_chunk;
        DELETE FROM spans WHERE chunk = p_chunk;
    END IF;
    EXECUTE format('DROP TABLE %I', v_part || '_' || p_chunk);
    RETURN v_part || '_' || p_chunk;
END $$;
