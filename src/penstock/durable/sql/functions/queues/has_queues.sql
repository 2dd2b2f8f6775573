-- has_queues_v1: whether an environment has a queue.
-- Locks: none.
-- Cost: one index lookup.
CREATE OR REPLACE FUNCTION has_queues_v1(p_organization text, p_project text, p_environment text)
RETURNS TABLE (has_queues boolean)
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT 1 FROM queues q
                   WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment))
$$;
