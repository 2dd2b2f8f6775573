-- clear_queue_v1: delete up to p_limit dead letters and as many traces of a queue; how many there were.
-- Called until it finds nothing, so that deleting a queue never is one long statement.
CREATE OR REPLACE FUNCTION clear_queue_v1(p_queue_id bigint, p_limit int) RETURNS bigint
LANGUAGE sql AS $$
    WITH letters AS (
        DELETE FROM dead_letters WHERE id IN (
            SELECT d.id FROM dead_letters d WHERE d.queue_id = p_queue_id LIMIT p_limit)
        RETURNING 1
    ), doomed AS MATERIALIZED (
        SELECT x.id, x.environment_id, x.names, x.created_at
        FROM partitions t JOIN traces x ON x.partition_id = t.id
        WHERE t.queue_id = p_queue_id LIMIT p_limit
    ), unnamed AS (
        DELETE FROM trace_names n USING doomed d
        WHERE n.environment_id = d.environment_id AND n.name = ANY (d.names)
          AND n.created_at = d.created_at AND n.trace_id = d.id
    ), forgotten AS (
        DELETE FROM traces x USING doomed d WHERE x.id = d.id RETURNING 1
    )
    SELECT (SELECT count(*) FROM letters) + (SELECT count(*) FROM forgotten)
$$;

-- delete_queue_v1: delete a queue with its partitions, groups, positions and totals; whether there was one.
-- What it has in `log` and `message_keys` belongs to nobody then and goes with its chunks.
-- Locks: holds the queue alone; its row, its partitions by id and its positions by partition and group before
-- anything is deleted, which is the order of those who work on them; so pushes, pops and acks finish first.
CREATE OR REPLACE FUNCTION delete_queue_v1(p_queue_id bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hold_queues_v1(ARRAY[p_queue_id], true);
    PERFORM 1 FROM queues WHERE id = p_queue_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM 1 FROM partitions WHERE queue_id = p_queue_id ORDER BY id FOR NO KEY UPDATE;
    PERFORM 1 FROM positions p JOIN partitions t ON t.id = p.partition_id WHERE t.queue_id = p_queue_id
    ORDER BY p.partition_id, p.group_id FOR UPDATE OF p;
    -- Its operations go with it, and are off their lanes then.
    INSERT INTO operation_tallies AS y (kind, slot, finished)
    SELECT o.kind, slot_v1(), count(*) FROM operations o
    WHERE o.queue_id = p_queue_id AND (o.status = 'pending' OR o.holds) GROUP BY o.kind ORDER BY o.kind
    ON CONFLICT (kind, slot) DO UPDATE SET finished = y.finished + excluded.finished;
    DELETE FROM queues WHERE id = p_queue_id;
    DELETE FROM dead_tallies WHERE queue_id = p_queue_id;
    DELETE FROM dead_counts WHERE queue_id = p_queue_id;
    DELETE FROM dead_error_counts WHERE queue_id = p_queue_id;
    DELETE FROM dead_hours WHERE queue_id = p_queue_id;
    RETURN true;
END $$;
