-- ensure_queues_v1: ensure that an environment and its queues exist.
-- A queue called ns.task gets that namespace and task.
-- Returns: the environment's id.
CREATE OR REPLACE FUNCTION ensure_queues_v1(
    p_organization text, p_project text, p_environment text, p_queues text[]
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_environment bigint;
BEGIN
    INSERT INTO environments (organization, project, name)
    VALUES (p_organization, p_project, p_environment) ON CONFLICT DO NOTHING;
    SELECT e.id INTO v_environment FROM environments e
    WHERE (e.organization, e.project, e.name) = (p_organization, p_project, p_environment);

    INSERT INTO queues (environment_id, name, namespace, task)
    SELECT DISTINCT v_environment, n, CASE WHEN n LIKE '%.%' THEN split_part(n, '.', 1) ELSE '' END,
           CASE WHEN n LIKE '%.%' THEN substr(n, strpos(n, '.') + 1) ELSE '' END
    FROM unnest(p_queues) n ORDER BY n
    ON CONFLICT DO NOTHING;
    RETURN v_environment;
END $$;
