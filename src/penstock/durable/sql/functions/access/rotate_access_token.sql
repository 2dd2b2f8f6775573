-- rotate_access_token_v1: add a secret to an active token; its other secrets expire after p_overlap at the latest.
-- Returns: whether the token was active. Secrets that have expired already are deleted.
-- Locks: the token row; the access version.
CREATE OR REPLACE FUNCTION rotate_access_token_v1(p_id uuid, p_hash bytea, p_prefix text, p_overlap interval)
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM access_tokens t
    WHERE t.id = p_id AND t.revoked_at IS NULL AND coalesce(t.expires_at > clock_timestamp(), true)
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM access_token_secrets s WHERE s.token_id = p_id AND s.expires_at <= clock_timestamp();
    UPDATE access_token_secrets s SET expires_at = least(s.expires_at, clock_timestamp() + p_overlap)
    WHERE s.token_id = p_id;
    INSERT INTO access_token_secrets (hash, token_id, prefix) VALUES (p_hash, p_id, p_prefix);
    PERFORM raise_access_version_v1();
    RETURN true;
END $$;
