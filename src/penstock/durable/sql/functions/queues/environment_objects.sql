-- environment_objects_v1: count the queues, partitions and messages of an environment.
-- Messages count until retention drops them, whether they are consumed or not.
-- Returns: one row.
-- Locks: none.
-- Cost: follows queues and partitions, never messages.
CREATE OR REPLACE FUNCTION environment_objects_v1(p_organization text, p_project text, p_environment text)
RETURNS TABLE (queues bigint, partitions bigint, messages bigint)
LANGUAGE sql STABLE AS $$
    SELECT count(DISTINCT q.id), count(t.id), coalesce(sum(t.next_offset - t.low_offset), 0)::bigint
    FROM queues q LEFT JOIN partitions t ON t.queue_id = q.id
    WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
$$;
