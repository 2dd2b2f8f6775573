-- queue_names_v1: the environment and the name of each queue that exists, by queue id.
-- Locks: none.
-- Cost: one index lookup per queue.
CREATE OR REPLACE FUNCTION queue_names_v1(p_queue_ids bigint[])
RETURNS TABLE (organization text, project text, environment text, queue_id bigint, queue text)
LANGUAGE sql STABLE AS $$
    SELECT e.organization, e.project, e.name, q.id, q.name
    FROM queues q JOIN environments e ON e.id = q.environment_id WHERE q.id = ANY (p_queue_ids)
$$;
