-- environment_queue_count_v1: the number of durable queues of an environment.
-- Locks: none.
-- Cost: follows those queues: it reads their index.
CREATE OR REPLACE FUNCTION environment_queue_count_v1(p_organization text, p_project text, p_environment text)
RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT count(*) FROM queues q
    WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
$$;
