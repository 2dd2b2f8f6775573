-- ensure_group_v1: the id of a group, made with a position in every partition of its queue. The queue is
-- made too if it is missing: a consumer may come before the first producer.
-- Every position starts as ready: a push that is under way cannot see it yet, so only a pop, which looks
-- under the partition's lock, may find it empty.
-- Locks: a new group takes the queue's row, so that a partition made meanwhile is not missed.
CREATE OR REPLACE FUNCTION ensure_group_v1(
    p_organization text, p_project text, p_environment text, p_queue text, p_group text
) RETURNS TABLE (queue_id bigint, group_id bigint, lease_ms bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_environment bigint;
    v_queue       bigint;
    v_group       bigint;
BEGIN
    v_environment := ensure_queues_v1(p_organization, p_project, p_environment, ARRAY[p_queue]);
    SELECT q.id INTO v_queue FROM queues q WHERE q.environment_id = v_environment AND q.name = p_queue;
    SELECT g.id INTO v_group FROM groups g WHERE g.queue_id = v_queue AND g.name = p_group;
    IF v_group IS NULL THEN
        PERFORM 1 FROM queues WHERE id = v_queue FOR UPDATE;
        INSERT INTO groups (queue_id, name) VALUES (v_queue, p_group)
        ON CONFLICT DO NOTHING RETURNING id INTO v_group;
        IF v_group IS NULL THEN
            SELECT g.id INTO v_group FROM groups g WHERE g.queue_id = v_queue AND g.name = p_group;
        ELSE
            INSERT INTO positions (partition_id, group_id, cursor, ready_at)
            SELECT p.id, v_group, p.low_offset,
                   coalesce((SELECT l.created_at FROM log l
                             WHERE l.partition_id = p.id AND l.first_offset <= p.low_offset
                               AND l.last_offset >= p.low_offset
                             ORDER BY l.first_offset DESC LIMIT 1), '-infinity')
            FROM partitions p WHERE p.queue_id = v_queue;
            INSERT INTO tallies (queue_id, group_id, slot, messages)
            SELECT v_queue, v_group, 0, coalesce(sum(p.low_offset), 0)
            FROM partitions p WHERE p.queue_id = v_queue;
        END IF;
    END IF;
    RETURN QUERY SELECT v_queue, v_group, q.lease_ms FROM queues q WHERE q.id = v_queue;
END $$;
