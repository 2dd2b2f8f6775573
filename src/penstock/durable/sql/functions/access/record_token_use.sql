-- record_token_use_v1: store that requests came with these tokens until now.
-- Locks: the token rows; rows that another broker updates now are skipped, it stores nearly the same time.
CREATE OR REPLACE FUNCTION record_token_use_v1(p_ids uuid[]) RETURNS void
LANGUAGE sql AS $$
    UPDATE access_tokens t SET last_used_at = clock_timestamp()
    FROM (SELECT u.id FROM access_tokens u WHERE u.id = ANY (p_ids) FOR NO KEY UPDATE SKIP LOCKED) used
    WHERE t.id = used.id
$$;
