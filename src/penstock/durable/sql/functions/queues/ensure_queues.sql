-- ensure_queues_v1: ensure that queues of an environment exist.
-- A queue called ns.task gets that namespace and task.
-- Returns: the environment's id.
-- Raises: PK006 the environment does not exist.
CREATE OR REPLACE FUNCTION ensure_queues_v1(
    p_organization text, p_project text, p_environment text, p_queues text[]
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_environment bigint := require_environment_v1(p_organization, p_project, p_environment);
BEGIN
    INSERT INTO queues (environment_id, name, namespace, task)
    SELECT DISTINCT v_environment, n, CASE WHEN n LIKE '%.%' THEN split_part(n, '.', 1) ELSE '' END,
           CASE WHEN n LIKE '%.%' THEN substr(n, strpos(n, '.') + 1) ELSE '' END
    FROM unnest(p_queues) n ORDER BY n
    ON CONFLICT DO NOTHING;
    RETURN v_environment;
END $$;
