-- nearest_queue_names_v1: up to p_limit names of queues on each side of p_queue in the order of names; p_queue itself
-- too, if there is such a queue.
-- Locks: none.
-- Cost: p_limit entries of an index in each direction, however many queues there are.
CREATE OR REPLACE FUNCTION nearest_queue_names_v1(
    p_organization text, p_project text, p_environment text, p_queue text, p_limit int
) RETURNS TABLE (name text)
LANGUAGE sql STABLE AS $$
    WITH environment AS MATERIALIZED (SELECT environment_id_v1(p_organization, p_project, p_environment) AS id)
    (SELECT q.name FROM queues q WHERE q.environment_id = (SELECT e.id FROM environment e) AND q.name >= p_queue
     ORDER BY q.name LIMIT p_limit)
    UNION ALL
    (SELECT q.name FROM queues q WHERE q.environment_id = (SELECT e.id FROM environment e) AND q.name < p_queue
     ORDER BY q.name DESC LIMIT p_limit)
$$;
