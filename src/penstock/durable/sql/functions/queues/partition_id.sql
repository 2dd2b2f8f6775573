-- partition_id_v1: the id of a queue's partition by name; no row if there is none.
-- Locks: none.
-- Cost: one index lookup.
CREATE OR REPLACE FUNCTION partition_id_v1(p_queue_id bigint, p_partition text)
RETURNS TABLE (partition_id bigint)
LANGUAGE sql STABLE AS $$
    SELECT t.id FROM partitions t WHERE t.queue_id = p_queue_id AND t.name = p_partition
$$;
