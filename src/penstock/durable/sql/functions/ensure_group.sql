-- ensure_group_v1: the id of a group, made with a position in every partition of its queue. The queue is
-- made too if it is missing: a consumer may come before the first producer.
-- A new group starts at p_subscription: all that is kept, new (what is pushed from now on), or a moment.
-- Every position starts as ready: a push that is under way cannot see it yet, so only a pop, which looks
-- under the partition's lock, may find it empty.
-- Locks: a new group takes the queue's row, so that a partition made meanwhile is not missed.
CREATE OR REPLACE FUNCTION ensure_group_v1(
    p_organization text, p_project text, p_environment text, p_queue text, p_group text,
    p_subscription text DEFAULT 'all'
) RETURNS TABLE (queue_id bigint, group_id bigint, lease_ms bigint, encrypted boolean)
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
        INSERT INTO groups (queue_id, name, subscription) VALUES (v_queue, p_group, p_subscription)
        ON CONFLICT DO NOTHING RETURNING id INTO v_group;
        IF v_group IS NULL THEN
            SELECT g.id INTO v_group FROM groups g WHERE g.queue_id = v_queue AND g.name = p_group;
        ELSE
            INSERT INTO positions (partition_id, group_id, cursor, ready_at)
            SELECT s.id, v_group, s.start,
                   coalesce(created_at_v1(s.id, s.start) + s.delay_ms * interval '1 millisecond', '-infinity')
            FROM (SELECT p.id, q.delay_ms, CASE p_subscription
                             WHEN 'all' THEN p.low_offset
                             WHEN 'new' THEN p.next_offset
                             ELSE offset_at_v1(p.id, p_subscription::timestamptz) END AS start
                  FROM partitions p JOIN queues q ON q.id = p.queue_id WHERE p.queue_id = v_queue) s;
            PERFORM skip_deleted_v1(v_group);
            INSERT INTO tallies (queue_id, group_id, slot, messages)
            SELECT v_queue, v_group, 0, coalesce(sum(p.cursor), 0) FROM positions p WHERE p.group_id = v_group;
        END IF;
    END IF;
    RETURN QUERY SELECT v_queue, v_group, q.lease_ms, q.encrypted FROM queues q WHERE q.id = v_queue;
END $$;
