-- alert_incident_chart_v1: the chart of an incident of the environment; NULL if it has none or does not exist.
-- Locks: none.
CREATE OR REPLACE FUNCTION alert_incident_chart_v1(p_organization text, p_project text, p_environment text, p_id uuid)
RETURNS bytea
LANGUAGE sql STABLE AS $$
    SELECT i.chart FROM alert_incidents i
    WHERE i.id = p_id AND i.environment_id = environment_id_v1(p_organization, p_project, p_environment)
$$;
