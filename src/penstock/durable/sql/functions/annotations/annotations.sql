-- annotations_v1: list the annotations and incidents of an environment between p_start and p_end, the latest first.
-- p_queue selects those of one queue and of the whole environment; NULL selects all. p_kind selects one kind.
-- Returns: up to p_limit rows. An incident has the kind `incident` and its own id; it is ongoing until it is resolved.
-- Locks: none.
-- Cost: follows the annotations since p_start, and the last 5,000 incidents before p_end.
CREATE OR REPLACE FUNCTION annotations_v1(
    p_organization text, p_project text, p_environment text, p_queue text, p_kind text, p_start timestamptz,
    p_end timestamptz, p_limit int
) RETURNS TABLE (id text, kind text, at timestamptz, end_at timestamptz, ongoing boolean, queue text, text text,
                 subject text, link text)
LANGUAGE sql STABLE AS $$
    SELECT a.id::text, a.kind, a.at, a.end_at, false, a.queue, a.text, a.subject, a.link
    FROM annotations a
    WHERE a.environment_id = environment_id_v1(p_organization, p_project, p_environment)
      AND a.last_at >= p_start AND a.at < p_end
      AND (p_queue IS NULL OR a.queue IS NULL OR a.queue = p_queue) AND (p_kind IS NULL OR a.kind = p_kind)
    UNION ALL
    SELECT i.id::text, 'incident', q.fired_at, q.resolved_at, q.resolved_at IS NULL, q.queue,
           concat_ws(': ', i.rule ->> 'name', q.summary), '', NULL
    FROM (SELECT r.* FROM alert_incidents r
          WHERE r.environment_id = environment_id_v1(p_organization, p_project, p_environment) AND r.opened_at < p_end
          ORDER BY r.opened_at DESC, r.id LIMIT 5000) i
    CROSS JOIN LATERAL (
        SELECT min(s.fired_at) AS fired_at,
               coalesce(i.resolved_at, CASE WHEN bool_and(s.resolved_at IS NOT NULL) THEN max(s.resolved_at) END)
                   AS resolved_at,
               CASE WHEN count(*) = 1 THEN nullif(min(s.queue), '') END AS queue,
               CASE WHEN count(*) = 1 THEN min(s.summary) ELSE count(*) || ' queues' END AS summary
        FROM alert_incident_queues s WHERE s.incident_id = i.id AND (p_queue IS NULL OR s.queue IN (p_queue, ''))
    ) q
    WHERE q.fired_at < p_end AND coalesce(q.resolved_at, 'infinity') >= p_start
      AND coalesce(p_kind, 'incident') = 'incident'
    ORDER BY 3 DESC, 1 LIMIT p_limit
$$;
