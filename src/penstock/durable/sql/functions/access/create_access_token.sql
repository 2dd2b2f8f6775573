-- create_access_token_v1: store a new token with its first secret.
-- p_lifetime counts from now and is used if p_expires_at is NULL; both NULL: the token does not expire.
-- Returns: created, name exists, or unknown environment.
-- Locks: the name of the token, by its unique index; the access version.
CREATE OR REPLACE FUNCTION create_access_token_v1(
    p_organization text, p_project text, p_environment text, p_id uuid, p_name text, p_scopes text[], p_queues text[],
    p_groups text[], p_is_platform_admin boolean, p_quotas jsonb, p_created_by text, p_expires_at timestamptz,
    p_lifetime interval, p_hash bytea, p_prefix text
) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_environment_id bigint;
BEGIN
    SELECT e.id INTO v_environment_id FROM environments e
    WHERE e.id = environment_id_v1(p_organization, p_project, p_environment) AND e.deletion_requested_at IS NULL
    FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN 'unknown environment';
    END IF;
    INSERT INTO access_tokens (id, environment_id, name, scopes, queues, groups, is_platform_admin, quotas, created_by,
                               expires_at)
    VALUES (p_id, v_environment_id, p_name, p_scopes, p_queues, p_groups, p_is_platform_admin, p_quotas, p_created_by,
            coalesce(p_expires_at, clock_timestamp() + p_lifetime))
    ON CONFLICT (environment_id, name) WHERE revoked_at IS NULL DO NOTHING;
    IF NOT FOUND THEN
        RETURN 'name exists';
    END IF;
    INSERT INTO access_token_secrets (hash, token_id, prefix) VALUES (p_hash, p_id, p_prefix);
    PERFORM raise_access_version_v1();
    RETURN 'created';
END $$;
