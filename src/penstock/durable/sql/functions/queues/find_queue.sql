-- find_queue_v1: the queue of a name: its id and all its columns as JSON; no row if there is none.
-- Locks: none.
-- Cost: one index lookup.
CREATE OR REPLACE FUNCTION find_queue_v1(p_organization text, p_project text, p_environment text, p_queue text)
RETURNS TABLE (id bigint, columns jsonb)
LANGUAGE sql STABLE AS $$
    SELECT q.id, to_jsonb(q) FROM queues q
    WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment) AND q.name = p_queue
$$;
