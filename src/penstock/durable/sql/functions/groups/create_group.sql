-- create_group_v1: ensure that a group of a queue exists, with a position in every partition.
-- Every position starts as ready: a push that is running cannot see it yet, so only a pop, which reads under the
-- partition's lock, may find it empty. The caller has the queue locked (exclusive).
-- Returns: the group's id.
CREATE OR REPLACE FUNCTION create_group_v1(p_queue_id bigint, p_group text, p_subscription text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_group bigint;
BEGIN
    INSERT INTO groups (queue_id, name, subscription) VALUES (p_queue_id, p_group, p_subscription)
    ON CONFLICT DO NOTHING RETURNING id INTO v_group;
    IF v_group IS NULL THEN
        RETURN (SELECT g.id FROM groups g WHERE g.queue_id = p_queue_id AND g.name = p_group);
    END IF;
    INSERT INTO positions (partition_id, group_id, cursor, ready_at)
    SELECT s.id, v_group, s.start,
           coalesce(message_created_at_v1(s.id, s.start) + s.delay_ms * interval '1 millisecond', '-infinity')
    FROM (SELECT p.id, q.delay_ms, CASE p_subscription
                     WHEN 'all' THEN p.low_offset
                     WHEN 'new' THEN p.next_offset
                     ELSE offset_at_time_v1(p.id, p_subscription::timestamptz) END AS start
          FROM partitions p JOIN queues q ON q.id = p.queue_id WHERE p.queue_id = p_queue_id) s;
    PERFORM finish_deleted_messages_v1(v_group);
    INSERT INTO tallies (queue_id, group_id, slot, messages)
    SELECT p_queue_id, v_group, 0, coalesce(sum(p.cursor), 0) FROM positions p WHERE p.group_id = v_group;
    RETURN v_group;
END $$;
