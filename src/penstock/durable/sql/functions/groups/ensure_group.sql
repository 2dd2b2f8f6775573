-- ensure_group_v1: ensure that a group exists, with a position in every partition of its queue.
-- A new group starts at p_subscription: `all` (the first message kept), `new` (messages pushed from now on), or a
-- timestamp.
-- Returns: the ids of queue and group, and the queue's lease time and encryption; no row if the queue does not exist.
-- Locks: for a new group its queue (exclusive), so that a partition created meanwhile is not missed.
CREATE OR REPLACE FUNCTION ensure_group_v1(
    p_organization text, p_project text, p_environment text, p_queue text, p_group text,
    p_subscription text DEFAULT 'all'
) RETURNS TABLE (queue_id bigint, group_id bigint, lease_ms bigint, encrypted boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_queue bigint;
    v_group bigint;
BEGIN
    SELECT q.id, g.id INTO v_queue, v_group
    FROM queues q LEFT JOIN groups g ON g.queue_id = q.id AND g.name = p_group
    WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment) AND q.name = p_queue;
    IF v_group IS NULL AND v_queue IS NOT NULL THEN
        PERFORM lock_queues_v1(ARRAY[v_queue], true);
        IF EXISTS (SELECT 1 FROM queues q WHERE q.id = v_queue) THEN
            v_group := create_group_v1(v_queue, p_group, p_subscription);
        END IF;
    END IF;
    RETURN QUERY SELECT v_queue, v_group, q.lease_ms, q.encrypted FROM queues q WHERE q.id = v_queue;
END $$;
