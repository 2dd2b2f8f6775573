-- close_chunks_v1: mark chunks that are not the newest as closed, with the transactions that may still write to them.
-- Call it after open_chunk_v1 was committed.
-- Returns: the number of chunks closed.
CREATE OR REPLACE FUNCTION close_chunks_v1() RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    v_closed int;
BEGIN
    LOCK TABLE chunk_stages IN SHARE ROW EXCLUSIVE MODE;
    UPDATE chunk_stages SET stage = 'closed', blocking_transactions = transactions_using_log_v1(false),
           changed_at = clock_timestamp()
    WHERE stage = 'open' AND chunk < (SELECT max(id) FROM chunks);
    GET DIAGNOSTICS v_closed = ROW_COUNT;
    RETURN v_closed;
END $$;
