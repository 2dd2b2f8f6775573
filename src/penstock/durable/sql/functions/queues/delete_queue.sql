-- delete_queue_v1: delete a queue with its partitions, groups, positions and totals.
-- Its rows in `log`, `message_keys` and `message_values` belong to no queue afterwards and are dropped with their chunks.
-- Returns: whether the queue existed.
-- Locks: the queue (exclusive); its row, its partitions by id and its positions by partition and group before anything
-- is deleted. Pushes, pops and acks take them in the same order, so running ones finish first.
CREATE OR REPLACE FUNCTION delete_queue_v1(p_queue_id bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM lock_queues_v1(ARRAY[p_queue_id], true);
    PERFORM 1 FROM queues WHERE id = p_queue_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM 1 FROM partitions WHERE queue_id = p_queue_id ORDER BY id FOR NO KEY UPDATE;
    PERFORM 1 FROM positions p JOIN partitions t ON t.id = p.partition_id WHERE t.queue_id = p_queue_id
    ORDER BY p.partition_id, p.group_id FOR UPDATE OF p;
    -- Its operations are deleted with it and no longer wait in lanes.
    INSERT INTO operation_tallies AS y (kind, slot, finished)
    SELECT o.kind, tally_slot_v1(), count(*) FROM operations o
    WHERE o.queue_id = p_queue_id AND (o.status = 'pending' OR o.blocks_lane) GROUP BY o.kind ORDER BY o.kind
    ON CONFLICT (kind, slot) DO UPDATE SET finished = y.finished + excluded.finished;
    DELETE FROM queues WHERE id = p_queue_id;
    DELETE FROM dead_tallies WHERE queue_id = p_queue_id;
    DELETE FROM dead_counts WHERE queue_id = p_queue_id;
    DELETE FROM dead_error_counts WHERE queue_id = p_queue_id;
    DELETE FROM dead_hours WHERE queue_id = p_queue_id;
    RETURN true;
END $$;
