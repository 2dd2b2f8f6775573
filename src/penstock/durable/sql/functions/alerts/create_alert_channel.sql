-- create_alert_channel_v1: store a new channel of an environment.
-- Raises: PK006 the environment does not exist.
-- Returns: the channel; no row if the environment has one of this name.
-- Locks: the name of the channel, by its unique index.
CREATE OR REPLACE FUNCTION create_alert_channel_v1(
    p_organization text, p_project text, p_environment text, p_id uuid, p_name text, p_kind text, p_settings jsonb,
    p_secrets bytea, p_enabled boolean
) RETURNS SETOF alert_channels
LANGUAGE sql AS $$
    INSERT INTO alert_channels (id, environment_id, name, kind, settings, secrets, enabled)
    VALUES (p_id, require_environment_v1(p_organization, p_project, p_environment), p_name, p_kind, p_settings, p_secrets,
            p_enabled)
    ON CONFLICT (environment_id, name) DO NOTHING
    RETURNING *
$$;
