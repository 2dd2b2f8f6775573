-- close_chunks_v1: note for chunks that are not the newest any more which pushes may still be writing to them;
-- how many there were. To be called after open_chunk_v1 was committed.
CREATE OR REPLACE FUNCTION close_chunks_v1() RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    v_closed int;
BEGIN
    LOCK TABLE chunk_stages IN SHARE ROW EXCLUSIVE MODE;
    UPDATE chunk_stages SET stage = 'closed', waits_for = log_transactions_v1(false), changed_at = clock_timestamp()
    WHERE stage = 'open' AND chunk < (SELECT max(id) FROM chunks);
    GET DIAGNOSTICS v_closed = ROW_COUNT;
    RETURN v_closed;
END $$;
