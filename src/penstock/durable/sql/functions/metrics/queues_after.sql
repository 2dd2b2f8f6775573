-- queues_after_v1: read the next p_limit queues of all environments by id.
-- Locks: none.
-- Cost: follows p_limit.
CREATE OR REPLACE FUNCTION queues_after_v1(p_after bigint, p_limit int)
RETURNS TABLE (queue_id bigint, organization text, project text, environment text, queue text)
LANGUAGE sql STABLE AS $$
    SELECT q.id, e.organization, e.project, e.name, q.name
    FROM queues q JOIN environments e ON e.id = q.environment_id
    WHERE q.id > p_after ORDER BY q.id LIMIT p_limit
$$;
