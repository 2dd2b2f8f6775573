-- needs_encryption_v1: whether a payload is plain and must not be, because its queue is encrypted by now. A sealed one
-- starts with the byte 1.
CREATE OR REPLACE FUNCTION needs_encryption_v1(p_encrypted boolean, p_payload bytea) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT p_encrypted AND (length(p_payload) = 0 OR get_byte(p_payload, 0) <> 1)
$$;
