-- delete_group_v1: delete a consumer group of a queue. Its dead letters stay.
-- Returns: the number of partitions in which it had a position.
-- Locks: the queue (exclusive); partitions by id, positions by partition, the group's row.
CREATE OR REPLACE FUNCTION delete_group_v1(p_group_id bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_positions bigint;
BEGIN
    PERFORM lock_queues_v1(array_agg(g.queue_id), true) FROM groups g WHERE g.id = p_group_id;
    PERFORM 1 FROM groups g JOIN partitions t ON t.queue_id = g.queue_id
    WHERE g.id = p_group_id ORDER BY t.id FOR NO KEY UPDATE OF t;
    PERFORM 1 FROM groups g
    JOIN partitions t ON t.queue_id = g.queue_id
    JOIN positions p ON p.partition_id = t.id AND p.group_id = g.id
    WHERE g.id = p_group_id ORDER BY p.partition_id FOR UPDATE OF p;
    DELETE FROM positions p USING groups g, partitions t
    WHERE g.id = p_group_id AND t.queue_id = g.queue_id AND p.partition_id = t.id AND p.group_id = g.id;
    GET DIAGNOSTICS v_positions = ROW_COUNT;
    DELETE FROM tallies y USING groups g
    WHERE g.id = p_group_id AND y.queue_id = g.queue_id AND y.group_id = g.id;
    DELETE FROM groups WHERE id = p_group_id;
    RETURN v_positions;
END $$;
