-- enabled_alert_channels_v1: the enabled channels of all environments, without settings and secrets.
-- Locks: none.
-- Cost: follows the number of channels.
CREATE OR REPLACE FUNCTION enabled_alert_channels_v1()
RETURNS TABLE (environment_id bigint, name text, id uuid)
LANGUAGE sql STABLE AS $$
    SELECT c.environment_id, c.name, c.id FROM alert_channels c WHERE c.enabled
$$;
