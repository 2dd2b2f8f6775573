-- access_tokens_v1: read a page of the tokens of an environment by name, with the prefixes of their secrets.
-- With p_id or p_name only that token; revoked ones only with p_id or p_with_revoked.
-- Locks: none.
-- Cost: the tokens of the environment.
CREATE OR REPLACE FUNCTION access_tokens_v1(
    p_organization text, p_project text, p_environment text, p_id uuid, p_name text, p_with_revoked boolean,
    p_limit int, p_offset int
) RETURNS TABLE (
    id uuid, name text, scopes text[], queues text[], groups text[], is_platform_admin boolean, quotas jsonb,
    created_by text, created_at timestamptz, expires_at timestamptz, revoked_at timestamptz, last_used_at timestamptz,
    state text, secrets jsonb
) LANGUAGE sql STABLE AS $$
    SELECT t.id, t.name, t.scopes, t.queues, t.groups, t.is_platform_admin, t.quotas, t.created_by, t.created_at,
           t.expires_at, t.revoked_at, t.last_used_at,
           CASE WHEN t.revoked_at IS NOT NULL THEN 'revoked'
                WHEN t.expires_at <= clock_timestamp() THEN 'expired'
                ELSE 'active' END,
           (SELECT coalesce(jsonb_agg(jsonb_build_object(
                       'prefix', s.prefix, 'createdAt', s.created_at, 'expiresAt', s.expires_at
                   ) ORDER BY s.created_at DESC), '[]')
            FROM access_token_secrets s
            WHERE s.token_id = t.id AND coalesce(s.expires_at > clock_timestamp(), true))
    FROM access_tokens t
    WHERE t.environment_id = environment_id_v1(p_organization, p_project, p_environment)
      AND (p_id IS NULL OR t.id = p_id)
      AND (p_name IS NULL OR t.name = p_name)
      AND (p_with_revoked OR p_id IS NOT NULL OR t.revoked_at IS NULL)
    ORDER BY t.name, t.created_at DESC
    LIMIT p_limit OFFSET p_offset
$$;
