-- needs_encryption_v1: tell whether a payload is plain although its queue is encrypted now.
-- An encrypted payload starts with the byte 1.
CREATE OR REPLACE FUNCTION needs_encryption_v1(p_encrypted boolean, p_payload bytea) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT p_encrypted AND (length(p_payload) = 0 OR get_byte(p_payload, 0) <> 1)
$$;
