-- live_token_secrets_v1: read the secrets of valid tokens, with what these allow; also in environments that are being
-- deleted.
-- Returns: one row per secret. expires_in_s counts by the clock of this server, so the clocks of brokers do not matter.
-- Locks: none.
-- Cost: all live tokens; brokers call it when the access version has changed.
CREATE OR REPLACE FUNCTION live_token_secrets_v1() RETURNS TABLE (
    hash bytea, token_id uuid, token_number int, organization text, project text, environment text, name text,
    scopes text[], queues text[], groups text[], is_platform_admin boolean, quotas jsonb, expires_in_s double precision
) LANGUAGE sql STABLE AS $$
    SELECT s.hash, t.id, t.number, e.organization, e.project, e.name, t.name, t.scopes, t.queues, t.groups,
           t.is_platform_admin, t.quotas,
           extract(epoch FROM least(t.expires_at, s.expires_at) - clock_timestamp())::double precision
    FROM access_tokens t
    JOIN access_token_secrets s ON s.token_id = t.id
    JOIN environments e ON e.id = t.environment_id
    WHERE t.revoked_at IS NULL
      AND coalesce(least(t.expires_at, s.expires_at) > clock_timestamp(), true)
$$;
