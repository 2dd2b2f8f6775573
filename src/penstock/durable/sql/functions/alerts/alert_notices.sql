-- alert_notices_v1: a page of an environment's notices, the latest first.
-- A parameter that is NULL does not filter.
-- Locks: none.
-- Cost: follows the page and p_offset; with a filter, the notices that are passed over.
CREATE OR REPLACE FUNCTION alert_notices_v1(
    p_organization text, p_project text, p_environment text, p_id uuid, p_state text, p_channel text, p_incident_id uuid,
    p_limit int, p_offset int
) RETURNS TABLE (
    id uuid, incident_id uuid, transition text, channel text, kind text, rule text, state text, attempts int,
    next_attempt_at timestamptz, last_error text, created_at timestamptz, sent_at timestamptz
)
LANGUAGE sql STABLE AS $$
    SELECT n.id, n.incident_id, n.transition, c.name, c.kind, n.message ->> 'ruleName', n.state, n.attempts,
           n.next_attempt_at, n.last_error, n.created_at, n.sent_at
    FROM alert_notices n
    JOIN alert_channels c ON c.id = n.channel_id
    WHERE n.environment_id = environment_id_v1(p_organization, p_project, p_environment)
      AND (p_id IS NULL OR n.id = p_id)
      AND (p_state IS NULL OR n.state = p_state)
      AND (p_channel IS NULL OR c.name = p_channel)
      AND (p_incident_id IS NULL OR n.incident_id = p_incident_id)
    ORDER BY n.created_at DESC, n.id LIMIT p_limit OFFSET p_offset
$$;
