-- record_alert_evaluation_v1: store what one evaluation decided, in one transaction: states, incidents and notices exist
-- together or not at all. Times in the JSON are seconds since the epoch.
-- p_states: objects of alert_states; an object with "forget" deletes the row. p_incidents: incidents with their queues.
-- p_notices: {environment_id, incident_id, transition, channels, message}. A resolved notice goes to the channels that
-- received the first one, whatever the rule says now.
-- Locks: the rows it writes. Only the session with the lock of the evaluator calls it.
CREATE OR REPLACE FUNCTION record_alert_evaluation_v1(
    p_states jsonb, p_status jsonb, p_incidents jsonb, p_notices jsonb, p_evaluated_to timestamptz,
    p_duration_s double precision
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM alert_states s USING jsonb_to_recordset(p_states) AS n (rule_id uuid, queue text, forget boolean)
    WHERE n.forget AND s.rule_id = n.rule_id AND s.queue = n.queue;

    INSERT INTO alert_states (rule_id, queue, phase, since, in_phase_s, evaluated_at, unknown_reason, value, notified_at)
    SELECT n.rule_id, n.queue, n.phase, to_timestamp(n.since_s), n.in_phase_s, to_timestamp(n.evaluated_s),
           n.unknown_reason, n.value, to_timestamp(n.notified_s)
    FROM jsonb_to_recordset(p_states) AS n (
        rule_id uuid, queue text, forget boolean, phase text, since_s double precision, in_phase_s double precision,
        evaluated_s double precision, unknown_reason text, value double precision, notified_s double precision)
    JOIN alert_rules r ON r.id = n.rule_id   -- the rule may have been deleted meanwhile
    WHERE n.forget IS NOT TRUE
    ON CONFLICT (rule_id, queue) DO UPDATE SET
        phase = excluded.phase, since = excluded.since, in_phase_s = excluded.in_phase_s,
        evaluated_at = excluded.evaluated_at, unknown_reason = excluded.unknown_reason, value = excluded.value,
        notified_at = excluded.notified_at;

    INSERT INTO alert_rule_status (rule_id, evaluated_at, ok, pending, firing, clearing, unknown, unknown_reason)
    SELECT n.rule_id, to_timestamp(n.evaluated_s), n.ok, n.pending, n.firing, n.clearing, n.unknown, n.unknown_reason
    FROM jsonb_to_recordset(p_status) AS n (
        rule_id uuid, evaluated_s double precision, ok int, pending int, firing int, clearing int, unknown int,
        unknown_reason text)
    JOIN alert_rules r ON r.id = n.rule_id
    ON CONFLICT (rule_id) DO UPDATE SET
        evaluated_at = excluded.evaluated_at, ok = excluded.ok, pending = excluded.pending, firing = excluded.firing,
        clearing = excluded.clearing, unknown = excluded.unknown, unknown_reason = excluded.unknown_reason;

    INSERT INTO alert_incidents (id, environment_id, rule_id, rule, severity, opened_at, resolved_at, resolution, cause,
                                 chart, inhibited_by, silenced, notified_at, notice_count)
    SELECT n.id, n.environment_id, r.id, n.rule, n.severity, to_timestamp(n.opened_s), to_timestamp(n.resolved_s),
           n.resolution, n.cause, decode(n.chart, 'base64'), n.inhibited_by, n.silenced, to_timestamp(n.notified_s),
           n.notice_count
    FROM jsonb_to_recordset(p_incidents) AS n (
        id uuid, environment_id bigint, rule_id uuid, rule jsonb, severity text, opened_s double precision,
        resolved_s double precision, resolution text, cause jsonb, chart text, inhibited_by uuid, silenced boolean,
        notified_s double precision, notice_count int)
    LEFT JOIN alert_rules r ON r.id = n.rule_id
    ON CONFLICT (id) DO UPDATE SET
        resolved_at = excluded.resolved_at, resolution = excluded.resolution,
        cause = coalesce(excluded.cause, alert_incidents.cause), chart = coalesce(excluded.chart, alert_incidents.chart),
        inhibited_by = excluded.inhibited_by, silenced = excluded.silenced, notified_at = excluded.notified_at,
        notice_count = excluded.notice_count;

    INSERT INTO alert_incident_queues (incident_id, queue, fired_at, resolved_at, value, threshold, summary, notified_at)
    SELECT n.id, q.queue, to_timestamp(q.fired_s), to_timestamp(q.resolved_s), q.value, q.threshold, q.summary,
           to_timestamp(q.notified_s)
    FROM jsonb_to_recordset(p_incidents) AS n (id uuid, queues jsonb)
    CROSS JOIN LATERAL jsonb_to_recordset(n.queues) AS q (
        queue text, fired_s double precision, resolved_s double precision, value double precision,
        threshold double precision, summary text, notified_s double precision)
    ON CONFLICT (incident_id, queue) DO UPDATE SET
        fired_at = excluded.fired_at, resolved_at = excluded.resolved_at, value = excluded.value,
        threshold = excluded.threshold, summary = excluded.summary, notified_at = excluded.notified_at;

    INSERT INTO alert_notices (id, environment_id, incident_id, transition, channel_id, message)
    SELECT gen_random_uuid(), n.environment_id, n.incident_id, n.transition, c.id, n.message
    FROM jsonb_to_recordset(p_notices) AS n (
        environment_id bigint, incident_id uuid, transition text, channels text[], message jsonb)
    JOIN alert_channels c ON c.environment_id = n.environment_id
     AND CASE WHEN n.transition = 'resolved'
              THEN EXISTS (SELECT FROM alert_notices o WHERE o.incident_id = n.incident_id AND o.channel_id = c.id)
              ELSE c.enabled AND c.name = ANY (n.channels) END
    ON CONFLICT (incident_id, transition, channel_id) DO NOTHING;

    UPDATE alert_evaluator SET evaluated_at = clock_timestamp(), evaluated_to = p_evaluated_to,
           duration_s = p_duration_s, evaluations = evaluations + 1, last_error = NULL;
END $$;
