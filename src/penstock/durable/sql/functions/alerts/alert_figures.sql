-- alert_figures_v1: figures for the exporter: the evaluator of the cluster, and the incidents and notices of an environment.
-- Returns: `figure` is lag, duration, evaluations, failures, incidents (labels: severity and state) or notices (label:
-- state; those of the last day). There is no lag before the first evaluation.
-- Cost: follows the open incidents and the notices of a day.
CREATE OR REPLACE FUNCTION alert_figures_v1(
    p_organization text, p_project text, p_environment text, p_now timestamptz DEFAULT NULL
) RETURNS TABLE (figure text, labels text[], value double precision)
LANGUAGE sql STABLE AS $$
    WITH scope AS (
        SELECT environment_id_v1(p_organization, p_project, p_environment) AS environment_id,
               coalesce(p_now, clock_timestamp()) AS now
    )
    SELECT f.figure, '{}'::text[], f.value
    FROM alert_evaluator e CROSS JOIN scope c
    CROSS JOIN LATERAL (VALUES
        ('lag', extract(epoch FROM c.now - e.evaluated_to)::double precision), ('duration', e.duration_s),
        ('evaluations', e.evaluations), ('failures', e.failures)) AS f (figure, value)
    WHERE f.value IS NOT NULL
    UNION ALL
    SELECT 'incidents', ARRAY[s.severity, t.state], count(i.id)
    FROM scope c
    CROSS JOIN unnest(ARRAY['info', 'warning', 'critical']) AS s (severity)
    CROSS JOIN unnest(ARRAY['open', 'acknowledged']) AS t (state)
    LEFT JOIN alert_incidents i
      ON i.resolved_at IS NULL AND i.environment_id = c.environment_id AND i.severity = s.severity
     AND (i.acknowledged_at IS NOT NULL) = (t.state = 'acknowledged')
    GROUP BY s.severity, t.state
    UNION ALL
    SELECT 'notices', ARRAY[t.state], count(n.id)
    FROM scope c
    CROSS JOIN unnest(ARRAY['pending', 'sent', 'failed']) AS t (state)
    LEFT JOIN alert_notices n
      ON n.environment_id = c.environment_id AND n.created_at > c.now - interval '1 day' AND n.state = t.state
    GROUP BY t.state
$$;
