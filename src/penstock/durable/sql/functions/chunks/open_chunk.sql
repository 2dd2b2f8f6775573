-- open_chunk_v1: move the chunk that prepare_chunk_v1 created one step closer to receiving pushes.
-- Each step waits for every transaction that used the log at the previous step. Call it in transactions of its own,
-- until it returns `open`.
-- 1. A transaction that ran when the tables were attached may have read the list of tables before. It would neither
--    find the new table for its pushes nor see the messages that others push to it. Later transactions know the new
--    table.
-- 2. Such a transaction may also have been planning a query. When a plan reads the log through an inlined function,
--    PostgreSQL does not notice that the plan became outdated while it was made, and keeps it. So the function
--    invalidates the plans of all sessions once more, when no such planning can be running any more.
-- 3. A transaction that started before that may still use an old plan, until it ends.
-- Returns: the chunk's stage afterwards; NULL if there is no such chunk or it must still wait.
-- Locks: SHARE UPDATE EXCLUSIVE on `log`, `message_keys` and `message_values` to notify the sessions: no push, pop or
-- ack waits for it.
CREATE OR REPLACE FUNCTION open_chunk_v1(p_now timestamptz DEFAULT NULL) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_next chunk_stages;
BEGIN
    LOCK TABLE chunk_stages IN SHARE ROW EXCLUSIVE MODE;
    SELECT * INTO v_next FROM chunk_stages WHERE stage IN ('spare', 'announced');
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    -- Read here and not in the previous step, because that step must be committed first.
    IF v_next.blocking_transactions IS NULL THEN
        UPDATE chunk_stages SET blocking_transactions = transactions_using_log_v1(false)
        WHERE chunk = v_next.chunk RETURNING * INTO v_next;
    END IF;
    IF NOT transactions_ended_v1(v_next.blocking_transactions) THEN
        RETURN NULL;
    END IF;
    IF v_next.stage = 'spare' THEN
        -- Changes nothing, but invalidates the cached plans of every session.
        ALTER TABLE ONLY log ALTER COLUMN payloads SET STATISTICS 0;
        ALTER TABLE ONLY message_keys ALTER COLUMN chunk SET STATISTICS -1;
        ALTER TABLE ONLY message_values ALTER COLUMN chunk SET STATISTICS -1;
        v_next.stage := 'announced';
    ELSE
        INSERT INTO chunks (id, opened_at) VALUES (v_next.chunk, coalesce(p_now, clock_timestamp()));
        v_next.stage := 'open';
    END IF;
    UPDATE chunk_stages SET stage = v_next.stage, blocking_transactions = NULL, changed_at = clock_timestamp()
    WHERE chunk = v_next.chunk;
    RETURN v_next.stage;
END $$;
