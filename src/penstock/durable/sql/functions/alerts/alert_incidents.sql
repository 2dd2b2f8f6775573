-- alert_incidents_v1: a page of an environment's incidents, the latest first, each with its first p_queue_limit queues.
-- p_state is open, acknowledged, resolved, or unresolved for the first two. A parameter that is NULL does not filter.
-- Locks: none.
-- Cost: follows the page and p_offset; with a filter, the incidents that are passed over.
CREATE OR REPLACE FUNCTION alert_incidents_v1(
    p_organization text, p_project text, p_environment text, p_id uuid, p_state text, p_queue text, p_rule text,
    p_severity text, p_queue_limit int, p_limit int, p_offset int
) RETURNS TABLE (
    id uuid, state text, rule_id uuid, rule jsonb, severity text, opened_at timestamptz, acknowledged_at timestamptz,
    acknowledged_by text, resolved_at timestamptz, resolution text, cause jsonb, has_chart boolean, inhibited_by uuid,
    silenced boolean, notified_at timestamptz, queue_count bigint, firing_count bigint, queues jsonb
)
LANGUAGE sql STABLE AS $$
    WITH page AS (
        SELECT i.*, s.state
        FROM alert_incidents i
        CROSS JOIN LATERAL (
            SELECT CASE WHEN i.resolved_at IS NOT NULL THEN 'resolved'
                        WHEN i.acknowledged_at IS NOT NULL THEN 'acknowledged' ELSE 'open' END AS state) s
        WHERE i.environment_id = environment_id_v1(p_organization, p_project, p_environment)
          AND (p_id IS NULL OR i.id = p_id)
          AND (p_state IS NULL OR p_state = s.state OR (p_state = 'unresolved' AND i.resolved_at IS NULL))
          AND (p_rule IS NULL OR i.rule ->> 'name' = p_rule)
          AND (p_severity IS NULL OR i.severity = p_severity)
          AND (p_queue IS NULL
               OR EXISTS (SELECT FROM alert_incident_queues q WHERE q.incident_id = i.id AND q.queue = p_queue))
        ORDER BY i.opened_at DESC, i.id LIMIT p_limit OFFSET p_offset)
    SELECT p.id, p.state, p.rule_id, p.rule, p.severity, p.opened_at, p.acknowledged_at, p.acknowledged_by, p.resolved_at,
           p.resolution, p.cause, p.chart IS NOT NULL, p.inhibited_by, p.silenced, p.notified_at, c.queues, c.firing,
           coalesce(f.queues, '[]')
    FROM page p
    CROSS JOIN LATERAL (
        SELECT count(*) AS queues, count(*) FILTER (WHERE q.resolved_at IS NULL) AS firing
        FROM alert_incident_queues q WHERE q.incident_id = p.id) c
    CROSS JOIN LATERAL (
        SELECT jsonb_agg(to_jsonb(q) ORDER BY q.resolved_at IS NOT NULL, q.fired_at, q.queue) AS queues
        FROM (SELECT a.queue, a.fired_at, a.resolved_at, a.value, a.threshold, a.summary, a.notified_at
              FROM alert_incident_queues a WHERE a.incident_id = p.id
              ORDER BY a.resolved_at IS NOT NULL, a.fired_at, a.queue LIMIT p_queue_limit) q) f
    ORDER BY p.opened_at DESC, p.id
$$;
