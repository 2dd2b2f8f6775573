-- set_queue_paused_v1: pause or resume a queue. Pops of a paused queue return no messages.
-- Returns: the queue's id; no row if there is no such queue.
-- Locks: the queue's row.
-- Cost: one row.
CREATE OR REPLACE FUNCTION set_queue_paused_v1(
    p_organization text, p_project text, p_environment text, p_queue text, p_paused boolean
) RETURNS TABLE (queue_id bigint)
LANGUAGE sql AS $$
    UPDATE queues q SET paused = p_paused
    WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment) AND q.name = p_queue
    RETURNING q.id
$$;
