-- matching_queues_v1: the queues of a namespace and a task, highest priority first, then by name. NULL matches any
-- namespace or task.
-- Locks: none.
-- Cost: follows the queues of the environment.
CREATE OR REPLACE FUNCTION matching_queues_v1(
    p_organization text, p_project text, p_environment text, p_namespace text, p_task text
) RETURNS TABLE (id bigint, name text)
LANGUAGE sql STABLE AS $$
    SELECT q.id, q.name FROM queues q JOIN environments e ON e.id = q.environment_id
    WHERE (e.organization, e.project, e.name) = (p_organization, p_project, p_environment)
      AND (p_namespace IS NULL OR q.namespace = p_namespace) AND (p_task IS NULL OR q.task = p_task)
    ORDER BY q.priority DESC, q.name
$$;
