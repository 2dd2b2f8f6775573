-- create_access_session_v1: store the session of a person, or of a token that someone logged in with.
-- It ends after p_lifetime_s seconds, and not later than the token. Sessions that have ended are deleted here: logins
-- are rare, and each of them leaves at most one row behind.
-- Returns: the seconds until it ends; no row if the token is revoked or expired.
-- Locks: the session, and ended sessions that no other login deletes.
CREATE OR REPLACE FUNCTION create_access_session_v1(
    p_hash bytea, p_subject text, p_display_name text, p_token_id uuid, p_groups text[], p_csrf_token text,
    p_lifetime_s double precision
) RETURNS TABLE (expires_in_s double precision)
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM access_sessions s WHERE s.hash IN (
        SELECT e.hash FROM access_sessions e WHERE e.expires_at <= clock_timestamp()
        ORDER BY e.expires_at LIMIT 100 FOR UPDATE SKIP LOCKED
    );
    RETURN QUERY
        INSERT INTO access_sessions AS s (hash, subject, display_name, token_id, groups, csrf_token, expires_at)
        SELECT p_hash, p_subject, p_display_name, p_token_id, p_groups, p_csrf_token,
               least(clock_timestamp() + make_interval(secs => p_lifetime_s), t.expires_at)
        FROM (SELECT p_token_id AS id) AS login
        LEFT JOIN access_tokens t ON t.id = login.id
        WHERE p_token_id IS NULL
           OR (t.revoked_at IS NULL AND coalesce(t.expires_at > clock_timestamp(), t.id IS NOT NULL))
        RETURNING extract(epoch FROM s.expires_at - clock_timestamp())::double precision;
END $$;
