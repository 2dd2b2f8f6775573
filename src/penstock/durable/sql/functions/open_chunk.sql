-- open_chunk_v1: let pushes go to the spare chunk, if every transaction that used the log when it was attached
-- has ended; the chunk that was opened, else NULL.
-- One that still runs may have looked up the log's tables before, and would neither find the new table for
-- what it pushes nor see what others push to it. Who comes later has seen the attachment, because it was
-- committed, and told to every session, before.
-- Call it in a transaction after the one of prepare_chunk_v1, until it answers.
CREATE OR REPLACE FUNCTION open_chunk_v1(p_now timestamptz DEFAULT NULL) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    v_spare chunk_stages;
BEGIN
    LOCK TABLE chunk_stages IN SHARE ROW EXCLUSIVE MODE;
    SELECT * INTO v_spare FROM chunk_stages WHERE stage = 'spare';
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    -- Looked up here, because the attachment must be committed first.
    IF v_spare.waits_for IS NULL THEN
        UPDATE chunk_stages SET waits_for = log_users_v1(false)
        WHERE chunk = v_spare.chunk RETURNING * INTO v_spare;
    END IF;
    IF NOT have_ended_v1(v_spare.waits_for) THEN
        RETURN NULL;
    END IF;
    INSERT INTO chunks (id, opened_at) VALUES (v_spare.chunk, coalesce(p_now, clock_timestamp()));
    UPDATE chunk_stages SET stage = 'open', waits_for = NULL, changed_at = clock_timestamp()
    WHERE chunk = v_spare.chunk;
    RETURN v_spare.chunk;
END $$;
