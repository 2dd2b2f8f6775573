-- open_alert_incidents_v1: the open incidents of all environments with their queues. rule_id is NULL if the rule is gone.
CREATE OR REPLACE FUNCTION open_alert_incidents_v1()
RETURNS TABLE (id uuid, environment_id bigint, rule_id uuid, rule jsonb, opened_at timestamptz, notified_at timestamptz,
               notice_count int, acknowledged boolean, silenced boolean, inhibited_by uuid, cause jsonb, queues jsonb)
LANGUAGE sql STABLE AS $$
    SELECT i.id, i.environment_id, i.rule_id, i.rule, i.opened_at, i.notified_at, i.notice_count,
           i.acknowledged_at IS NOT NULL, i.silenced, i.inhibited_by, i.cause,
           coalesce((SELECT jsonb_agg(jsonb_build_object(
                         'queue', q.queue, 'fired_s', extract(epoch FROM q.fired_at),
                         'resolved_s', extract(epoch FROM q.resolved_at), 'value', q.value, 'threshold', q.threshold,
                         'summary', q.summary, 'notified_s', extract(epoch FROM q.notified_at)))
                     FROM alert_incident_queues q WHERE q.incident_id = i.id), '[]')
    FROM alert_incidents i WHERE i.resolved_at IS NULL
$$;
