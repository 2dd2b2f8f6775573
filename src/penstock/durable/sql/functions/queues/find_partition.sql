-- find_partition_v1: the partition of an id with its queue; no row if the environment does not have it.
-- Locks: none.
-- Cost: one index lookup per table.
CREATE OR REPLACE FUNCTION find_partition_v1(
    p_organization text, p_project text, p_environment text, p_partition_id bigint
) RETURNS TABLE (partition_id bigint, partition text, queue_id bigint, queue text, encrypted boolean)
LANGUAGE sql STABLE AS $$
    SELECT t.id, t.name, q.id, q.name, q.encrypted
    FROM partitions t JOIN queues q ON q.id = t.queue_id
    WHERE t.id = p_partition_id AND q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
$$;
