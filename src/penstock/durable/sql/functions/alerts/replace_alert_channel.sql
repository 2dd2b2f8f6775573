-- replace_alert_channel_v1: replace all but the name of a channel.
-- Returns: the channel; no row if it does not exist.
-- Locks: the channel row.
CREATE OR REPLACE FUNCTION replace_alert_channel_v1(
    p_id uuid, p_kind text, p_settings jsonb, p_secrets bytea, p_enabled boolean
) RETURNS SETOF alert_channels
LANGUAGE sql AS $$
    UPDATE alert_channels c SET kind = p_kind, settings = p_settings, secrets = p_secrets, enabled = p_enabled,
           updated_at = clock_timestamp()
    WHERE c.id = p_id
    RETURNING c.*
$$;
