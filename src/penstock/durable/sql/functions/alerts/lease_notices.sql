-- lease_notices_v1: lease to p_owner the next due notice of up to p_limit channels, except p_busy_channels.
-- A notice waits while an earlier one of the same incident and channel is pending: receivers get them in order. A channel
-- that is not enabled gets test notices only.
-- Returns: the notices with their channels; `attempts` counts the attempt that follows.
-- Locks: the notices SKIP LOCKED.
-- Cost: follows the number of due notices.
CREATE OR REPLACE FUNCTION lease_notices_v1(
    p_owner uuid, p_limit int, p_lease_ms int, p_busy_channels uuid[], p_now timestamptz DEFAULT NULL
) RETURNS TABLE (
    id uuid, transition text, message text, attempts int, created_at timestamptz, channel_id uuid, channel_name text,
    kind text, settings text, secrets bytea
)
LANGUAGE sql AS $$
    WITH due AS (
        SELECT DISTINCT ON (n.channel_id) n.id
        FROM alert_notices n
        JOIN alert_channels c ON c.id = n.channel_id
        WHERE n.state = 'pending' AND n.next_attempt_at <= coalesce(p_now, clock_timestamp())
          AND (n.lease_until IS NULL OR n.lease_until <= coalesce(p_now, clock_timestamp()))
          AND n.channel_id <> ALL (p_busy_channels) AND (c.enabled OR n.transition = 'test')
          AND NOT EXISTS (
              SELECT FROM alert_notices e
              WHERE e.incident_id = n.incident_id AND e.channel_id = n.channel_id AND e.state = 'pending'
                AND (e.created_at, e.id) < (n.created_at, n.id))
        ORDER BY n.channel_id, n.next_attempt_at, n.id
    ), locked AS (
        SELECT n.id FROM alert_notices n JOIN due d ON d.id = n.id
        WHERE n.state = 'pending' AND (n.lease_until IS NULL OR n.lease_until <= coalesce(p_now, clock_timestamp()))
        ORDER BY n.next_attempt_at LIMIT p_limit
        FOR UPDATE OF n SKIP LOCKED)
    UPDATE alert_notices n
    SET owner = p_owner, attempts = n.attempts + 1,
        lease_until = coalesce(p_now, clock_timestamp()) + p_lease_ms * interval '1 millisecond'
    FROM locked l, alert_channels c
    WHERE n.id = l.id AND c.id = n.channel_id
    RETURNING n.id, n.transition, n.message::text, n.attempts, n.created_at, c.id, c.name, c.kind, c.settings::text,
              c.secrets
$$;
