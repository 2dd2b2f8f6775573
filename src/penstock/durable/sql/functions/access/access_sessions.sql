-- access_sessions_v1: read the sessions with these hashes that have not ended, neither by time nor with their token.
-- Locks: none.
-- Cost: follows the hashes.
CREATE OR REPLACE FUNCTION access_sessions_v1(p_hashes bytea[]) RETURNS TABLE (
    hash bytea, subject text, display_name text, token_id uuid, groups text[], csrf_token text, expires_in_s double precision
) LANGUAGE sql STABLE AS $$
    SELECT s.hash, s.subject, s.display_name, s.token_id, s.groups, s.csrf_token,
           extract(epoch FROM s.expires_at - clock_timestamp())::double precision
    FROM access_sessions s
    LEFT JOIN access_tokens t ON t.id = s.token_id
    WHERE s.hash = ANY (p_hashes)
      AND s.expires_at > clock_timestamp()
      AND (s.token_id IS NULL OR t.revoked_at IS NULL)
$$;
