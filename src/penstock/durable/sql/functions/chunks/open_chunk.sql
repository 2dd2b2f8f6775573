-- open_chunk_v1: bring the chunk that prepare_chunk_v1 made one step nearer to being pushed to; its stage
-- afterwards, NULL if there is none or it must still wait. Each step waits for every transaction that used the log
-- at the step before; to be called in transactions of its own, until it answers `open`.
-- 1. A transaction that ran when the tables were attached may have looked up the log's tables before: it would
--    neither find the new one for what it pushes nor see what others push to it. Who comes later was told.
-- 2. Such a transaction may also have been making a plan. When a plan reads the log by way of a function that is
--    put in its place, PostgreSQL does not notice that the plan became outdated while it was made, and keeps it.
--    So all sessions are told once more to plan anew, when nobody can be making such a plan any more.
-- 3. Whoever has begun before that may still work by an old plan, up to its end.
-- Locks: to tell the sessions, SHARE UPDATE EXCLUSIVE on `log` and `message_keys`: no push, pop or ack waits for it.
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
    -- Looked up here, because the step before must be committed first.
    IF v_next.waits_for IS NULL THEN
        UPDATE chunk_stages SET waits_for = log_transactions_v1(false)
        WHERE chunk = v_next.chunk RETURNING * INTO v_next;
    END IF;
    IF NOT transactions_ended_v1(v_next.waits_for) THEN
        RETURN NULL;
    END IF;
    IF v_next.stage = 'spare' THEN
        -- Changes nothing, but every session hears of it.
        ALTER TABLE ONLY log ALTER COLUMN payloads SET STATISTICS 0;
        ALTER TABLE ONLY message_keys ALTER COLUMN chunk SET STATISTICS -1;
        v_next.stage := 'announced';
    ELSE
        INSERT INTO chunks (id, opened_at) VALUES (v_next.chunk, coalesce(p_now, clock_timestamp()));
        v_next.stage := 'open';
    END IF;
    UPDATE chunk_stages SET stage = v_next.stage, waits_for = NULL, changed_at = clock_timestamp()
    WHERE chunk = v_next.chunk;
    RETURN v_next.stage;
END $$;
