-- write_notices_v1: add notices to the outbox, in the caller's transaction.
-- p_notices is a JSON array of {id, incident_id, transition, channel_id, message}. A notice exists once per incident,
-- transition and channel; one that exists stays as it is. A channel of another environment than the incident's, or one that
-- was deleted, gets none.
-- Returns: how many notices are new.
-- Locks: the channel rows FOR KEY SHARE, by the foreign key.
CREATE OR REPLACE FUNCTION write_notices_v1(p_notices jsonb, p_now timestamptz DEFAULT NULL)
RETURNS int
LANGUAGE sql AS $$
    WITH new_notices AS (
        INSERT INTO alert_notices (id, environment_id, incident_id, transition, channel_id, message, created_at,
                                   next_attempt_at)
        SELECT n.id, c.environment_id, n.incident_id, n.transition, n.channel_id, n.message, m.now, m.now
        FROM jsonb_to_recordset(p_notices)
                 AS n(id uuid, incident_id uuid, transition text, channel_id uuid, message jsonb)
        JOIN alert_channels c ON c.id = n.channel_id
        JOIN alert_incidents i ON i.id = n.incident_id AND i.environment_id = c.environment_id
        CROSS JOIN (SELECT coalesce(p_now, clock_timestamp()) AS now) m
        ON CONFLICT (incident_id, transition, channel_id) DO NOTHING
        RETURNING 1)
    SELECT count(*)::int FROM new_notices
$$;
