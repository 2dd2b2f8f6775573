-- queues_with_group_v1: the queues of an environment by id, each with its group of a name, if it has one.
-- Cost: follows the number of queues.
CREATE OR REPLACE FUNCTION queues_with_group_v1(p_organization text, p_project text, p_environment text, p_group text)
RETURNS TABLE (queue_id bigint, queue text, group_id bigint)
LANGUAGE sql STABLE AS $$
    SELECT q.id, q.name, g.id FROM queues q LEFT JOIN groups g ON g.queue_id = q.id AND g.name = p_group
    WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
    ORDER BY q.id
$$;
