-- open_next_chunk_v1: call open_chunk_v1 for the chunk that is prepared. Returns that chunk (NULL if none is prepared)
-- and the stage it reached (NULL if it must still wait).
-- Locks: those of open_chunk_v1.
-- Cost: that of open_chunk_v1.
CREATE OR REPLACE FUNCTION open_next_chunk_v1(p_now timestamptz DEFAULT NULL, OUT chunk int, OUT stage text)
LANGUAGE plpgsql AS $$
BEGIN
    SELECT s.chunk INTO chunk FROM chunk_stages s WHERE s.stage IN ('spare', 'announced');
    stage := open_chunk_v1(p_now);
END $$;
