-- write_acknowledged_notices_v1: tell the channels of an incident that it was acknowledged, in the caller's transaction.
-- Only webhooks and PagerDuty have such an event. A channel gets it once, and only if it got `opened`.
-- Returns: how many notices are new.
-- Locks: the channel rows FOR KEY SHARE, by the foreign key.
CREATE OR REPLACE FUNCTION write_acknowledged_notices_v1(p_incident_id uuid)
RETURNS int
LANGUAGE sql AS $$
    WITH new_notices AS (
        INSERT INTO alert_notices (id, environment_id, incident_id, transition, channel_id, message)
        SELECT gen_random_uuid(), n.environment_id, n.incident_id, 'acknowledged', n.channel_id,
               n.message || '{"transition": "acknowledged"}'
        FROM alert_notices n
        JOIN alert_channels c ON c.id = n.channel_id
        WHERE n.incident_id = p_incident_id AND n.transition = 'opened' AND c.kind IN ('webhook', 'pagerduty')
        ON CONFLICT (incident_id, transition, channel_id) DO NOTHING
        RETURNING 1)
    SELECT count(*)::int FROM new_notices
$$;
