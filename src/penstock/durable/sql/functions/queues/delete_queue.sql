-- delete_queue_v1: delete a queue with its partitions, groups, positions and totals; whether there was one.
-- What it has in `log` and `message_keys` belongs to nobody then and goes with its chunks.
-- Locks: holds the queue alone; its row, its partitions by id and its positions by partition and group before
-- anything is deleted, which is the order of those who work on them; so pushes, pops and acks finish first.
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
    -- Its operations go with it, and are off their lanes then.
    INSERT INTO operation_tallies AS y (kind, slot, finished)
    SELECT o.kind, tally_slot_v1(), count(*) FROM operations o
    WHERE o.queue_id = p_queue_id AND (o.status = 'pending' OR o.holds) GROUP BY o.kind ORDER BY o.kind
    ON CONFLICT (kind, slot) DO UPDATE SET finished = y.finished + excluded.finished;
    DELETE FROM queues WHERE id = p_queue_id;
    DELETE FROM dead_tallies WHERE queue_id = p_queue_id;
    DELETE FROM dead_counts WHERE queue_id = p_queue_id;
    DELETE FROM dead_error_counts WHERE queue_id = p_queue_id;
    DELETE FROM dead_hours WHERE queue_id = p_queue_id;
    RETURN true;
END $$;
