-- revoke_access_token_v1: end a token with all its secrets for good.
-- Returns: whether it was not revoked before.
-- Locks: the token row; the access version.
CREATE OR REPLACE FUNCTION revoke_access_token_v1(p_id uuid) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE access_tokens t SET revoked_at = clock_timestamp() WHERE t.id = p_id AND t.revoked_at IS NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM raise_access_version_v1();
    RETURN true;
END $$;
