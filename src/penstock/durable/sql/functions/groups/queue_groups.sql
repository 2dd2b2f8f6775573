-- queue_groups_v1: the consumer groups of a queue by name.
-- Locks: none.
-- Cost: follows the groups of the queue.
CREATE OR REPLACE FUNCTION queue_groups_v1(p_queue_id bigint)
RETURNS TABLE (group_id bigint, name text)
LANGUAGE sql STABLE AS $$
    SELECT g.id, g.name FROM groups g WHERE g.queue_id = p_queue_id ORDER BY g.name
$$;
