-- delete_environment_rows_v1: delete up to p_limit rows of each table that belong to an environment which is being
-- deleted: jobs, traces, alerts, annotations, tokens with their sessions, and minute metrics. Its queues must be gone.
-- The caller repeats it until it returns 0, so that the deletion never is one long statement.
-- Returns: the number of rows deleted.
-- Locks: the rows. No request uses them any more.
CREATE OR REPLACE FUNCTION delete_environment_rows_v1(
    p_organization text, p_project text, p_environment text, p_limit int
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_id      bigint;
    v_deleted bigint := 0;
    v_rows    bigint;
BEGIN
    SELECT e.id INTO v_id FROM environments e
    WHERE (e.organization, e.project, e.name) = (p_organization, p_project, p_environment)
      AND e.deletion_requested_at IS NOT NULL;

    DELETE FROM jobs WHERE id IN (SELECT j.id FROM jobs j WHERE j.environment_id = v_id LIMIT p_limit);
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    v_deleted := v_deleted + v_rows;

    WITH names AS MATERIALIZED (
        SELECT n.environment_id, n.name, n.created_at, n.trace_id FROM trace_names n
        WHERE n.environment_id = v_id LIMIT p_limit
    ), traces_of_names AS (
        DELETE FROM traces x WHERE x.id IN (SELECT n.trace_id FROM names n)
    )
    DELETE FROM trace_names n USING names d
    WHERE (n.environment_id, n.name, n.created_at, n.trace_id) = (d.environment_id, d.name, d.created_at, d.trace_id);
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    v_deleted := v_deleted + v_rows;

    -- Notes, queues and notices of incidents, and states of rules, are deleted with them.
    DELETE FROM alert_notices WHERE id IN (
        SELECT n.id FROM alert_notices n WHERE n.environment_id = v_id LIMIT p_limit);
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    v_deleted := v_deleted + v_rows;
    DELETE FROM alert_incidents WHERE id IN (
        SELECT i.id FROM alert_incidents i WHERE i.environment_id = v_id LIMIT p_limit);
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    v_deleted := v_deleted + v_rows;
    DELETE FROM alert_rules WHERE environment_id = v_id;
    DELETE FROM alert_silences WHERE environment_id = v_id;
    DELETE FROM alert_channels c WHERE c.environment_id = v_id
        AND NOT EXISTS (SELECT 1 FROM alert_notices n WHERE n.environment_id = v_id);
    DELETE FROM error_groups WHERE (environment_id, queue, error_key) IN (
        SELECT g.environment_id, g.queue, g.error_key FROM error_groups g WHERE g.environment_id = v_id LIMIT p_limit);
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    v_deleted := v_deleted + v_rows;

    DELETE FROM annotations WHERE id IN (
        SELECT a.id FROM annotations a WHERE a.environment_id = v_id LIMIT p_limit);
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    v_deleted := v_deleted + v_rows;

    -- Secrets and sessions of a token are deleted with it.
    DELETE FROM access_tokens WHERE id IN (
        SELECT k.id FROM access_tokens k WHERE k.environment_id = v_id LIMIT p_limit);
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    v_deleted := v_deleted + v_rows;

    DELETE FROM queue_lag_metrics WHERE ctid = ANY (array(
        SELECT m.ctid FROM queue_lag_metrics m
        WHERE (m.organization, m.project, m.environment) = (p_organization, p_project, p_environment) LIMIT p_limit));
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    RETURN v_deleted + v_rows;
END $$;
