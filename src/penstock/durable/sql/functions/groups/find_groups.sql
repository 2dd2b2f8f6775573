-- find_groups_v1: the queues that a consumer group consumes, by queue name; only p_queue if it is not NULL.
-- Locks: none.
-- Cost: follows the queues of the environment.
CREATE OR REPLACE FUNCTION find_groups_v1(
    p_organization text, p_project text, p_environment text, p_group text, p_queue text
) RETURNS TABLE (group_id bigint, queue_id bigint, queue text, subscription text, created_at timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT g.id, g.queue_id, q.name, g.subscription, g.created_at
    FROM groups g JOIN queues q ON q.id = g.queue_id
    WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment) AND g.name = p_group
      AND (p_queue IS NULL OR q.name = p_queue)
    ORDER BY q.name
$$;
